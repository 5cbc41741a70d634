// What a `verify` that was killed leaves: its range, a directory with a store of its own that no
// other command looks into. A mark in the user's state directory names it while it lives.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/file_lock.h"

namespace cofferdam::orchestrator::verify {

class RangeMark final {
 public:
  // `state`: …/cofferdam; `range`: the directory.
  static Result<RangeMark> create(const std::filesystem::path& state,
                                  const std::filesystem::path& range);
  RangeMark(RangeMark&&) = default;
  RangeMark& operator=(RangeMark&&) = delete;
  ~RangeMark();

 private:
  RangeMark(std::filesystem::path file, os::FileLock lock)
      : file_(std::move(file)), lock_(std::move(lock)) {}
  std::filesystem::path file_;
  os::FileLock lock_;
};

struct ReapedRanges {
  std::vector<std::string> removed;  // directories
  std::vector<std::string> failed;   // with why; tried again the next time
};
// Ends what is left of each whose `verify` is gone, and removes it.
ReapedRanges reap_ranges(const std::filesystem::path& state);

}  // namespace cofferdam::orchestrator::verify
