// BackingHelper: the small process that keeps the privilege which passthrough needs (CAP_SYS_ADMIN
// in the first user namespace). It does nothing but register and release backing files at the
// mounts' /dev/fuse descriptors, so that the service that parses the workload's requests can do
// without. It stands in the same Landlock domain, and the kernel opens backing files with its
// credentials: what the service may not write, nobody writes through a backing file.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::fsproxy {

class BackingHelper final {
 public:
  // Whether this process could give the privilege to a helper at all; else why not.
  static Status possible();
  // Starts it, with duplicates of `mounts` (/dev/fuse descriptors). While the process has one
  // thread, after Landlock, before the capabilities are given up. It is in its cage when this
  // returns.
  static Result<std::unique_ptr<BackingHelper>> start(const std::vector<int>& mounts);
  ~BackingHelper();
  BackingHelper(const BackingHelper&) = delete;
  BackingHelper& operator=(const BackingHelper&) = delete;

  // The backing id of the open file `fd` at the mount; errors carry the kernel's errno. Any thread.
  Result<std::int32_t> add(std::uint32_t mount, int fd);
  // At most kMostAtOnce.
  static constexpr std::size_t kMostAtOnce = 32;
  void remove(std::uint32_t mount, const std::vector<std::int32_t>& backing_ids);

 private:
  BackingHelper(os::UniqueFd channel, pid_t child) : channel_(std::move(channel)), child_(child) {}

  std::mutex mutex_;  // one request and its answer at a time
  os::UniqueFd channel_;
  pid_t child_;
};

}  // namespace cofferdam::fsproxy
