// LowerWatcher: inotify(7) over the lower directories that the workload looked at. Its instance is
// made before the workload's first instruction, for the user's instances and watches are limited.
// Used by the mount's one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "fsproxy/overlay/lower_watch.h"

namespace cofferdam::fsproxy {

class LowerWatcher final : public overlay::LowerWatch {
 public:
  // At most `max_watches` directories; nullptr where this user has no instance left.
  static std::unique_ptr<LowerWatcher> create(std::size_t max_watches);
  // Half of what this user may have.
  static std::size_t fair_share();

  bool add(overlay::NodeId dir, int path_fd) override;
  void remove(overlay::NodeId dir) override;

  int fd() const { return inotify_.get(); }
  struct Told {
    // `entries`: a name came or went, or (with an empty name) the directory itself did.
    std::function<void(overlay::NodeId dir, const std::string& name, bool entries)> change;
    // The kernel dropped changes: anything may be others.
    std::function<void()> overflow;
  };
  // Reads what has come, without waiting.
  void drain(const Told& told);

  std::size_t size() const { return by_dir_.size(); }

 private:
  LowerWatcher(os::UniqueFd inotify, std::size_t max) : inotify_(std::move(inotify)), max_(max) {}

  os::UniqueFd inotify_;
  std::size_t max_;
  std::unordered_map<int, overlay::NodeId> by_watch_;
  std::unordered_map<overlay::NodeId, int> by_dir_;
};

}  // namespace cofferdam::fsproxy
