// KeepTimes: puts the times of a directory back after a name was created in it. Copy-up is not
// something that the workload did to the directory.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

namespace cofferdam::overlay {

class KeepTimes final {
 public:
  // `dir_fd` must outlive this.
  explicit KeepTimes(int dir_fd) : dir_fd_(dir_fd) {
    known_ = ::fstatat(dir_fd, "", &st_, AT_EMPTY_PATH) == 0;
  }
  ~KeepTimes() {
    const struct timespec times[2] = {st_.st_atim, st_.st_mtim};
    if (known_) (void)::utimensat(dir_fd_, ".", times, 0);
  }
  KeepTimes(const KeepTimes&) = delete;
  KeepTimes& operator=(const KeepTimes&) = delete;

 private:
  int dir_fd_;
  struct stat st_ {};
  bool known_ = false;
};

}  // namespace cofferdam::overlay
