// cofferdam-reader: parses the git objects that a sandbox wrote, so that nobody else has to.
//
// Started by cofferdam with one socket; see docs/processes.md.
#include "orchestrator/reader/cage.h"
#include "orchestrator/reader/object_id.h"
#include "orchestrator/reader/protocol.h"
#include "orchestrator/reader/service.h"

int main() {
  namespace reader = cofferdam::orchestrator::reader;
  // The library of hashes opens what it needs now or never.
  (void)reader::id_of(reader::ObjectType::kBlob, "");
  if (const cofferdam::Status caged = reader::enter_cage(); !caged.ok()) {
    return reader::refuse_to_serve(reader::kReaderSocket, caged.error().message());
  }
  return reader::serve(reader::kReaderSocket);
}
