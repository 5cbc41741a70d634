// Widened: lets a service without rights of its own work in a directory of its user that has taken
// permissions away from itself. The mode is put back by the destructor.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

namespace cofferdam::overlay {

class Widened final {
 public:
  // Adds `bits` (of 0700) to the directory (dir, name) of upper where they are missing; nothing for
  // what is no directory, or when `privileged`.
  Widened(int dir_fd, std::string name, mode_t bits, bool privileged)
      : dir_fd_(dir_fd), name_(std::move(name)) {
    struct stat st {};
    if (privileged || ::fstatat(dir_fd, name_.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode) || (st.st_mode & bits) == bits) {
      return;
    }
    mode_ = st.st_mode & 07777U;
    widened_ = ::fchmodat(dir_fd, name_.c_str(), mode_ | bits, 0) == 0;
  }
  ~Widened() { restore(); }
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;

  void restore() {
    // Nothing can be done about a failure: the directory keeps the bits that were added.
    if (widened_ && ::fchmodat(dir_fd_, name_.c_str(), mode_, 0) != 0) mode_ = 0;
    widened_ = false;
  }
  // The directory has another name now.
  void moved(int dir_fd, std::string name) {
    dir_fd_ = dir_fd;
    name_ = std::move(name);
  }
  // The directory is gone.
  void forget() { widened_ = false; }

 private:
  int dir_fd_;
  std::string name_;
  mode_t mode_ = 0;
  bool widened_ = false;
};

}  // namespace cofferdam::overlay
