#include "fsproxy/fuse/session.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

#include "common/os/pipes.h"

namespace cofferdam::fsproxy {

using std::chrono::steady_clock;

namespace {

// How long a thread asks again before it sleeps.
constexpr std::chrono::microseconds kSpin{20};

}  // namespace

Session::Session(std::string name, const OwnerPolicy& owner)
    : name_(std::move(name)), owner_(owner) {}

Session::~Session() {
  if (thread_.joinable()) {
    stop();
    join();
  }
}

Result<std::unique_ptr<Session>> Session::create(const MountPolicy& mount, const FsPolicy& policy,
                                                 overlay::Ledger& ledger, log::EventLog& events,
                                                 std::size_t max_open, os::UniqueFd fuse) {
  std::unique_ptr<Session> out(new Session(mount.name, policy.owner));
  out->guard_ = std::make_unique<Guard>(mount.name, events);
  overlay::Options options;
  options.lower = mount.lower;
  options.layer = mount.layer;
  options.writable = mount.writable;
  options.record = mount.record;
  options.owner_uid = policy.owner.uids.front();
  options.owner_gid = policy.owner.gids.front();
  options.rules = mount.rules;
  options.max_open = max_open;
  auto view = overlay::Overlay::open(std::move(options), ledger, *out->guard_);
  if (!view.ok()) return view.error().context("mount " + mount.name);
  out->view_ = std::move(view).value();
  out->state_ = std::make_unique<MountState>(MountState{*out->view_, *out->guard_, out->owner_});

  out->stop_event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!out->stop_event_) return Error::from_errno("eventfd");
  char program[] = "cofferdam-fsproxy";
  char* argv[] = {program, nullptr};
  struct fuse_args args = FUSE_ARGS_INIT(1, argv);
  const struct fuse_lowlevel_ops& ops = mount_operations();
  out->fuse_.reset(fuse_session_new(&args, &ops, sizeof ops, out->state_.get()));
  fuse_opt_free_args(&args);
  if (!out->fuse_) return Error("mount " + mount.name + ": no FUSE session");
  // A request that was taken back between poll and read must not block the thread.
  TRY(os::set_nonblocking(fuse.get(), true));
  // The session owns the descriptor from here on.
  const std::string path = "/dev/fd/" + std::to_string(fuse.get());
  if (fuse_session_mount(out->fuse_.get(), path.c_str()) != 0) {
    return Error("mount " + mount.name + ": descriptor " + std::to_string(fuse.get()) +
                 " is no mounted /dev/fuse");
  }
  (void)fuse.release();
  return out;
}

void Session::start(int ended_fd) {
  guard_->on_changed_under([this](overlay::NodeId node) {
    const std::lock_guard lock(drop_mutex_);
    to_drop_.push_back(node);
    drop_ready_.notify_one();
  });
  dropper_ = std::thread([this] { drop_pages(); });
  thread_ = std::thread([this, ended_fd] {
    serve();
    const char byte = 'x';
    (void)!::write(ended_fd, &byte, 1);
  });
}

void Session::stop() {
  stopping_ = true;
  const std::uint64_t one = 1;
  (void)!::write(stop_event_.get(), &one, sizeof one);
}

void Session::join() {
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(drop_mutex_);
    dropper_ends_ = true;
    drop_ready_.notify_one();
  }
  if (dropper_.joinable()) dropper_.join();
  if (Status s = view_->flush_records(); !s.ok())
    spdlog::error("{}: {}", name_, s.error().message());
}

bool Session::wait_for_request() {
  struct pollfd fds[2] = {{fuse_session_fd(fuse_.get()), POLLIN, 0},
                          {stop_event_.get(), POLLIN, 0}};
  const int timeout = view_->has_pending_records()
                          ? static_cast<int>(overlay::Records::kFlushInterval.count())
                          : -1;
  const int ready = ::poll(fds, 2, timeout);
  if (ready == 0) {
    if (Status s = view_->flush_records(); !s.ok()) {
      spdlog::error("{}: {}", name_, s.error().message());
    }
  }
  return (fds[0].revents & POLLERR) == 0;
}

void Session::serve() {
  struct fuse_buf buffer {};
  steady_clock::time_point idle_since{};
  steady_clock::time_point last_flush = steady_clock::now();
  while (!stopping_ && fuse_session_exited(fuse_.get()) == 0) {
    const int got = fuse_session_receive_buf(fuse_.get(), &buffer);
    if (got > 0) {
      fuse_session_process_buf(fuse_.get(), &buffer);
      requests_.fetch_add(1, std::memory_order_relaxed);
      nodes_.store(view_->nodes().size(), std::memory_order_relaxed);
      idle_since = steady_clock::time_point();
      if (view_->has_pending_records()) {
        const auto now = steady_clock::now();
        if (now - last_flush >= overlay::Records::kFlushInterval) {
          last_flush = now;
          if (Status s = view_->flush_records(); !s.ok()) {
            spdlog::error("{}: {}", name_, s.error().message());
          }
        }
      }
      continue;
    }
    if (got == -EINTR) continue;
    if (got != -EAGAIN) break;  // unmounted
    const auto now = steady_clock::now();
    if (idle_since == steady_clock::time_point()) idle_since = now;
    if (now - idle_since < kSpin) continue;
    idle_since = steady_clock::time_point();
    if (!wait_for_request()) break;
  }
  std::free(buffer.mem);
}

void Session::drop_pages() {
  std::unique_lock lock(drop_mutex_);
  for (;;) {
    drop_ready_.wait(lock, [&] { return dropper_ends_ || !to_drop_.empty(); });
    if (dropper_ends_) return;
    std::vector<overlay::NodeId> nodes;
    nodes.swap(to_drop_);
    lock.unlock();
    for (const overlay::NodeId node : nodes) {
      (void)fuse_lowlevel_notify_inval_inode(fuse_.get(), node, 0, 0);
    }
    lock.lock();
  }
}

}  // namespace cofferdam::fsproxy
