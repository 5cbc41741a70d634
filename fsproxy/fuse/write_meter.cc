#include "fsproxy/fuse/write_meter.h"

#include <sys/stat.h>

namespace cofferdam::fsproxy {
namespace {

std::uint64_t bytes_on_disk(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

}  // namespace

void WriteMeter::add(int fd) {
  {
    const std::lock_guard lock(mutex_);
    files_[fd] = bytes_on_disk(fd);
    count_ = files_.size();
    if (files_.size() > 1) return;
  }
  on_first_();
}

void WriteMeter::remove(int fd) {
  const std::lock_guard lock(mutex_);
  files_.erase(fd);
  count_ = files_.size();
}

void WriteMeter::charged(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(fd);
  if (found != files_.end()) found->second = bytes_on_disk(fd);
}

std::uint64_t WriteMeter::uncharged() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [fd, charged] : files_) {
    const std::uint64_t now = bytes_on_disk(fd);
    if (now > charged) sum += now - charged;
  }
  return sum;
}

}  // namespace cofferdam::fsproxy
