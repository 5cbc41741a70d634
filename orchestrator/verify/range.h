// Where the attacks are made: a project full of bait, and bait beside it, in a directory of its
// own; and one run of a sandbox there.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/os/files.h"
#include "common/os/process.h"

namespace cofferdam::orchestrator::verify {

struct RunDone {
  int status = 0;
  std::string out;
  std::string err;
  std::vector<Json> events;
};

// Its directory is called so, and something random.
inline constexpr const char* kRangePrefix = "cofferdam-verify-";

class Range final {
 public:
  static Result<Range> create();

  std::filesystem::path root() const { return root_.path(); }
  std::filesystem::path workspace() const { return root_.path() / "project"; }
  std::filesystem::path outside() const { return root_.path() / "beside"; }
  std::filesystem::path home() const { return root_.path() / "home"; }
  std::filesystem::path state() const { return root_.path() / "state"; }

  // What lies outside of the workspace, as it must be afterwards.
  bool outside_is_untouched() const;

  // `cofferdam run FLAGS -- COMMAND` in the project; `--dry-run` among the flags has no events.
  Result<RunDone> run(const std::vector<std::string>& flags,
                      const std::vector<std::string>& command,
                      std::chrono::milliseconds timeout) const;

  static constexpr const char* kHostToken = "COFFERDAM_VERIFY_HOST_TOKEN";

 private:
  explicit Range(os::TempDir root) : root_(std::move(root)) {}
  os::TempDir root_;
  std::vector<os::UniqueFd> sockets_;
};

}  // namespace cofferdam::orchestrator::verify
