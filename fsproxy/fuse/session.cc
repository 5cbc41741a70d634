#include "fsproxy/fuse/session.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

#include "common/os/files.h"
#include "common/os/pipes.h"

namespace cofferdam::fsproxy {

using std::chrono::steady_clock;

namespace {

// How long a thread asks again before it sleeps.
constexpr std::chrono::microseconds kSpin{20};
// Asking again in vain so often means that requests come seldom now: then it sleeps at once, until
// they come quickly.
constexpr int kMisses = 16;
// A sleep that was shorter is mostly the time that waking takes.
constexpr std::chrono::microseconds kShortSleep{80};
// How often keep_house is due.
// Nodes before the oldest are pruned, and how many at once.
constexpr std::size_t kMaxNodes = 1U << 17U;
constexpr std::size_t kPruned = 8192;
constexpr std::chrono::milliseconds kHouse{5};
// How long the kernel keeps a listing of a directory that is not watched. Less than a second, with
// the time that passes before the notifier is told.
constexpr std::chrono::milliseconds kListedFor{800};
// How often it is due without a request, while something is written past us.
constexpr std::chrono::milliseconds kMeter{20};

}  // namespace

Session::Session(std::string name)
    : name_(std::move(name)), meter_([this] { tell(News::kWriters); }) {}

Session::~Session() {
  if (thread_.joinable()) {
    join();
  }
  if (copies_) copies_->give_up();
  slow_.stop();
}

void Session::use_helper(BackingHelper* helper, std::uint32_t index) {
  *passthrough_ = Passthrough(helper, index);
}

void Session::tell_stale(std::vector<overlay::Stale> stale) {
  if (!stale.empty()) notifier_->tell(std::move(stale), true);
}

Result<std::unique_ptr<Session>> Session::create(const MountPolicy& mount, const FsPolicy& policy,
                                                 overlay::Ledger& ledger, log::EventLog& events,
                                                 std::size_t max_open, os::UniqueFd fuse) {
  std::unique_ptr<Session> out(new Session(mount.name));
  out->guard_ = std::make_unique<Guard>(mount.name, events);
  overlay::Options options;
  options.lower = mount.lower;
  options.layer = mount.layer;
  options.writable = mount.writable;
  options.record = mount.record;
  options.extended = mount.extended;
  options.owners = policy.owner;
  options.owner_uid = policy.owner.uids.front();
  options.owner_gid = policy.owner.gids.front();
  options.rules = mount.rules;
  options.max_open = max_open;
  if (mount.lower)
    out->watcher_ = LowerWatcher::create(LowerWatcher::fair_share() / policy.mounts.size());
  if (mount.lower && !out->watcher_) {
    spdlog::warn(
        "mount {}: no inotify instance is left for this user: changes below are seen within a "
        "second",
        mount.name);
  }
  options.watch = out->watcher_.get();
  out->writable_ = mount.writable && mount.layer;
  auto view = overlay::Overlay::open(std::move(options), ledger, *out->guard_);
  if (!view.ok()) return view.error().context("mount " + mount.name);
  out->view_ = std::move(view).value();
  if (out->writable_) {
    TRY_ASSIGN(out->disk_, os::open_file(*mount.layer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  }
  TRY(out->slow_.open());
  out->copies_ = std::make_unique<CopyQueue>(*out->view_, out->slow_);
  out->passthrough_ = std::make_unique<Passthrough>(nullptr, 0);
  out->listings_ = std::make_unique<Listings>(*out->view_);
  out->state_ = std::unique_ptr<MountState>(new MountState{*out->view_, *out->guard_, out->slow_,
                                                           *out->copies_, *out->passthrough_,
                                                           out->meter_, *out->listings_});
  out->stop_event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!out->stop_event_) return Error::from_errno("eventfd");
  char program[] = "cofferdam-fsproxy";
  char* argv[] = {program, nullptr};
  struct fuse_args args = FUSE_ARGS_INIT(1, argv);
  const struct fuse_lowlevel_ops& ops = mount_operations(mount.extended);
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

void Session::start(int news_fd) {
  notifier_ = std::make_unique<StaleNotifier>(fuse_.get());
  guard_->on_changed_under([this](overlay::NodeId node) {
    tell_stale({{0, "", node, false, false}});
  });
  news_fd_ = news_fd;
  thread_ = std::thread([this] {
    serve();
    tell(News::kEnded);
  });
}

void Session::tell(News news) const {
  const char byte = static_cast<char>(news);
  (void)!::write(news_fd_, &byte, 1);
}

void Session::tell_over_quota() {
  guard_->quota_exceeded("write", "");
}

void Session::join() {
  // While the mount is still served: see StaleNotifier::stop().
  if (notifier_) notifier_->stop();
  stopping_ = true;
  const std::uint64_t one = 1;
  (void)!::write(stop_event_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  if (copies_) copies_->give_up();
  slow_.stop();
  notifier_.reset();
  if (Status s = view_->flush_records(); !s.ok())
    spdlog::error("{}: {}", name_, s.error().message());
}

void Session::keep_house() {
  const auto now = steady_clock::now();
  if (view_->has_pending_records() && now - last_flush_ >= overlay::Records::kFlushInterval) {
    last_flush_ = now;
    if (Status s = view_->flush_records(); !s.ok())
      spdlog::error("{}: {}", name_, s.error().message());
  }
  if (watcher_) {
    std::vector<overlay::Stale> stale;
    const auto append = [&stale](std::vector<overlay::Stale> more) {
      stale.insert(stale.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    };
    watcher_->drain({[&](overlay::NodeId dir, const std::string& name, bool entries) {
                       append(view_->lower_changed(dir, name, entries));
                     },
                     [&] { append(view_->everything_changed()); }});
    tell_stale(std::move(stale));
  }
  for (const Handle* handle : state_->writers) {
    view_->account_now(*handle->file);
    meter_.charged(handle->file->fd.get());
  }
  view_->open_late();
  prune();
  tell_what_waits();
}

void Session::tell_what_waits() {
  passthrough_->flush();
  if (!state_->stale.empty()) notifier_->tell(std::exchange(state_->stale, {}), false);
  if (!state_->expiring.empty()) {
    notifier_->tell_after(std::exchange(state_->expiring, {}), kListedFor);
  }
}

// What the kernel remembers we have to remember, too: it is asked to forget before that is too
// much.
void Session::prune() {
  if (view_->nodes().size() <= kMaxNodes || !notifier_->idle()) return;
  std::vector<overlay::Stale> idle;
  for (overlay::Overlay::Idle& entry : view_->idle_entries(kPruned)) {
    idle.push_back({entry.parent, std::move(entry.name), 0, false, false});
  }
  notifier_->tell(std::move(idle), false);
}

void Session::publish() {
  nodes_.store(view_->nodes().size(), std::memory_order_relaxed);
  passthrough_on_.store(passthrough_->on(), std::memory_order_relaxed);
  if (watcher_) watches_.store(watcher_->size(), std::memory_order_relaxed);
}

bool Session::wait_for_request() {
  publish();
  tell_what_waits();
  struct pollfd fds[4] = {{fuse_session_fd(fuse_.get()), POLLIN, 0},
                          {stop_event_.get(), POLLIN, 0},
                          {slow_.wake_fd(), POLLIN, 0},
                          {watcher_ ? watcher_->fd() : -1, POLLIN, 0}};
  int timeout = view_->has_pending_records()
                    ? static_cast<int>(overlay::Records::kFlushInterval.count())
                    : -1;
  if (!state_->writers.empty()) timeout = static_cast<int>(kMeter.count());
  if (view_->has_late()) timeout = static_cast<int>(kHouse.count());
  const int ready = ::poll(fds, 4, timeout);
  if (ready == 0 || (fds[3].revents & POLLIN) != 0) keep_house();
  if ((fds[2].revents & POLLIN) != 0) slow_.run_completions();
  return (fds[0].revents & POLLERR) == 0;
}

void Session::serve() {
  struct fuse_buf buffer {};
  steady_clock::time_point idle_since{};
  steady_clock::time_point last_house = steady_clock::now();
  int misses = 0;
  while (!stopping_ && fuse_session_exited(fuse_.get()) == 0) {
    const int got = fuse_session_receive_buf(fuse_.get(), &buffer);
    const auto now = steady_clock::now();
    if (got > 0) {
      if (idle_since != steady_clock::time_point()) misses = 0;
      counts_.count(buffer.mem, static_cast<std::size_t>(got));
      fuse_session_process_buf(fuse_.get(), &buffer);
      copies_->sweep();
      idle_since = steady_clock::time_point();
      if (now - last_house >= kHouse) {
        last_house = now;
        keep_house();
        publish();
        slow_.run_completions();
      }
      continue;
    }
    if (got == -EINTR) continue;
    if (got != -EAGAIN) break;  // unmounted
    if (idle_since == steady_clock::time_point()) idle_since = now;
    if (misses < kMisses && now - idle_since < kSpin) continue;
    if (misses < kMisses) ++misses;
    idle_since = steady_clock::time_point();
    if (!wait_for_request()) break;
    if (misses == kMisses && steady_clock::now() - now < kShortSleep) misses = 0;
  }
  std::free(buffer.mem);
}

}  // namespace cofferdam::fsproxy
