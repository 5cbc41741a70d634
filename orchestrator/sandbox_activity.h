// What each sandbox of a store is doing now: for `cofferdam top`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

struct SandboxActivity {
  SandboxRecord record;
  bool orphan = false;                       // says that it runs, and nobody holds it
  std::optional<std::uint64_t> connections;  // to servers; none: egressproxy does not answer
  std::uint64_t denied = 0;                  // decisions in its events
  std::uint64_t allowed = 0;
  std::string last_denied;  // "connect evil.example:443: no_rule"; may hold what came from inside
  std::optional<std::uint64_t> upper_bytes;  // workspace and HOME; none: not known
  std::optional<std::uint64_t> upper_limit;
};

// Remembers how far it has read: each look costs what is new. Single thread.
class ActivityReader final {
 public:
  explicit ActivityReader(const SandboxStore& store) : store_(store) {}

  // Those that have not ended, `all`: every one; the newest first.
  Result<std::vector<SandboxActivity>> read(bool all);

 private:
  struct Seen {
    std::uint64_t offset = 0;
    std::uint64_t denied = 0;
    std::uint64_t allowed = 0;
    std::string last_denied;
    std::optional<std::uint64_t> ended_bytes;  // of one that has ended: counted once
  };
  void read_events(const SandboxRecord& record, Seen* seen);

  const SandboxStore& store_;
  std::map<std::string, Seen> seen_;
};

}  // namespace cofferdam::orchestrator
