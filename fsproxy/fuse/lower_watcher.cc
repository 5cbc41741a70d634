#include "fsproxy/fuse/lower_watcher.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>

#include "common/os/files.h"

namespace cofferdam::fsproxy {
namespace {

constexpr std::uint32_t kEntries = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
constexpr std::uint32_t kContent = IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE;
constexpr std::uint32_t kMask = kEntries | kContent | IN_ONLYDIR | IN_EXCL_UNLINK;

}  // namespace

std::size_t LowerWatcher::fair_share() {
  constexpr std::size_t kDefault = 8192;
  const auto text = os::read_file("/proc/sys/fs/inotify/max_user_watches");
  if (!text.ok()) return kDefault / 2;
  const unsigned long value = std::strtoul(text->c_str(), nullptr, 10);
  return value == 0 ? kDefault / 2 : value / 2;
}

std::unique_ptr<LowerWatcher> LowerWatcher::create(std::size_t max_watches) {
  os::UniqueFd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify) return nullptr;
  return std::unique_ptr<LowerWatcher>(new LowerWatcher(std::move(inotify), max_watches));
}

bool LowerWatcher::add(overlay::NodeId dir, int path_fd) {
  if (by_dir_.size() >= max_) return false;
  // The descriptor is our own, so this link leads to the directory that was opened and to no other.
  const std::string path = "/proc/self/fd/" + std::to_string(path_fd);
  const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), kMask);
  if (watch < 0) return false;
  // The same directory under another node: the newer one is told.
  const auto [at, fresh] = by_watch_.emplace(watch, dir);
  if (!fresh) {
    by_dir_.erase(at->second);
    at->second = dir;
  }
  by_dir_[dir] = watch;
  return true;
}

void LowerWatcher::remove(overlay::NodeId dir) {
  const auto found = by_dir_.find(dir);
  if (found == by_dir_.end()) return;
  (void)::inotify_rm_watch(inotify_.get(), found->second);
  by_watch_.erase(found->second);
  by_dir_.erase(found);
}

void LowerWatcher::drain(const Told& told) {
  alignas(struct inotify_event) char buffer[16384];
  for (;;) {
    const ssize_t got = ::read(inotify_.get(), buffer, sizeof buffer);
    if (got <= 0) return;
    for (ssize_t at = 0; at < got;) {
      struct inotify_event event {};
      std::memcpy(&event, buffer + at, sizeof event);
      const char* text = buffer + at + sizeof event;
      const std::string name = event.len == 0 ? "" : std::string(text, ::strnlen(text, event.len));
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        told.overflow();
        continue;
      }
      const auto found = by_watch_.find(event.wd);
      if (found == by_watch_.end()) continue;
      const overlay::NodeId dir = found->second;
      if ((event.mask & IN_IGNORED) != 0) {
        by_dir_.erase(dir);
        by_watch_.erase(found);
        told.change(dir, "", true);
        continue;
      }
      told.change(dir, name, (event.mask & kEntries) != 0);
    }
  }
}

}  // namespace cofferdam::fsproxy
