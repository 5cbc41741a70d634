// What a checkpoint asks of a session: to stop between two requests, and what it holds then.
#include <condition_variable>
#include <mutex>

#include "common/os/tree_paths.h"
#include "fsproxy/fuse/session.h"

namespace cofferdam::fsproxy {
namespace {

using std::chrono::steady_clock;

// Shared by the thread that waits and the one that makes it wait: either may be the last.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;   // under mutex
  bool released = false;  // under mutex
};

class Held final : public Session::Pause {
 public:
  explicit Held(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() override {
    const std::lock_guard lock(gate_->mutex);
    gate_->released = true;
    gate_->changed.notify_all();
  }

 private:
  std::shared_ptr<Gate> gate_;
};

}  // namespace

std::unique_ptr<Session::Pause> Session::pause(std::chrono::milliseconds patience) {
  auto gate = std::make_shared<Gate>();
  auto held = std::make_unique<Held>(gate);
  slow_.complete([gate] {
    std::unique_lock lock(gate->mutex);
    gate->reached = true;
    gate->changed.notify_all();
    gate->changed.wait(lock, [&] { return gate->released; });
  });
  {
    std::unique_lock lock(gate->mutex);
    if (gate->changed.wait_for(lock, patience, [&] { return gate->reached; })) return held;
  }
  return nullptr;
}

std::string Session::written_past() {
  for (const Handle* handle : state_->writers) {
    const std::vector<std::string> paths = view_->paths_of(handle->file->node->id);
    return paths.empty() ? "a file without a name" : name_ + ":" + paths.front();
  }
  return {};
}

void Session::after_freeze() {
  passthrough_->freeze([this](overlay::NodeId id) { return view_->lies_in_upper(id); });
}

void Session::fetch_mapped_writes(std::chrono::milliseconds patience) {
  std::vector<overlay::Stale> mapped;
  {
    const std::unique_ptr<Pause> paused = pause(patience);
    if (!paused) return;
    for (const overlay::NodeId node : view_->open_for_writing()) {
      mapped.push_back({0, "", node, false, false});
    }
  }
  if (mapped.empty()) return;
  // To drop the pages of a file, the kernel writes those that are dirty.
  notifier_->tell(std::move(mapped), false);
  const auto until = steady_clock::now() + patience;
  while (!notifier_->idle() && steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status Session::sync_disk() {
  return os::sync_file_system(disk_.get());
}

}  // namespace cofferdam::fsproxy
