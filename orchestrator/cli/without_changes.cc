// A build without the merge side refuses to tell or move changes.
#include "orchestrator/cli/commands.h"

namespace cofferdam::orchestrator::cli {

void add_diff(CLI::App&, Context&) {}
void add_export(CLI::App&, Context&) {}
void add_merge(CLI::App&, Context&) {}
int merge_after_run(const Context&, const SandboxRecord&) {
  return fail("this build cannot merge");
}
Result<std::size_t> count_changes(const SandboxRecord&) {
  return Error("this build cannot tell changes");
}

}  // namespace cofferdam::orchestrator::cli
