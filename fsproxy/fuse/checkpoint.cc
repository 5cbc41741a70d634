#include "fsproxy/fuse/checkpoint.h"

#include <sys/random.h>
#include <time.h>

#include <thread>

#include "common/log/event_log.h"

namespace cofferdam::fsproxy {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{10};

std::int64_t now_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Result<std::string> new_id() {
  unsigned char bytes[8];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Error::from_errno("checkpoint: random");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
  return out;
}

// All threads stopped, and nobody writes past us; they go on when this ends.
class Standstill final {
 public:
  explicit Standstill(std::vector<Session*> sessions) : sessions_(std::move(sessions)) {}
  ~Standstill() { release(); }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

  Status reach(steady_clock::time_point until) {
    for (Session* session : sessions_) session->allow_new_writers(false);
    for (;;) {
      TRY(pause(until));
      const std::string busy = written_past();
      if (busy.empty()) return {};
      release();
      if (steady_clock::now() >= until) {
        return Error("checkpoint: " + busy +
                         " is open for writing, and is written past the service: close it first",
                     EBUSY);
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }

 private:
  Status pause(steady_clock::time_point until) {
    for (Session* session : sessions_) {
      const auto left = std::max(
          std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now()),
          std::chrono::milliseconds(100));
      auto paused = session->pause(left);
      if (!paused) {
        release();
        return Error("checkpoint: the mount " + session->name() + " is busy with one request",
                     EBUSY);
      }
      pauses_.push_back(std::move(paused));
    }
    return {};
  }
  std::string written_past() const {
    for (Session* session : sessions_) {
      std::string path = session->written_past();
      if (!path.empty()) return path;
    }
    return {};
  }
  void release() {
    pauses_.clear();
    for (Session* session : sessions_) session->allow_new_writers(true);
  }

  std::vector<Session*> sessions_;
  std::vector<std::unique_ptr<Session::Pause>> pauses_;
};

// All or none, but for a kill between two commits; see take_checkpoint().
Status freeze_all(const std::vector<Session*>& sessions, layer::Checkpoint& checkpoint) {
  const auto frozen = [&]() -> Status {
    for (Session* session : sessions) TRY(session->view().prepare_freeze());
    for (Session* session : sessions) TRY(session->view().exchange_upper());
    for (auto it = sessions.rbegin(); it != sessions.rend(); ++it) {
      TRY((*it)->view().commit_freeze(checkpoint));
      (*it)->after_freeze();
    }
    return {};
  };
  const Status done = frozen();
  if (done.ok()) return {};
  for (Session* session : sessions) {
    if (Status back = session->view().take_back_freeze(); !back.ok()) {
      return done.error().context(back.error().message());
    }
  }
  return done;
}

}  // namespace

Result<layer::Checkpoint> take_checkpoint(const std::vector<std::unique_ptr<Session>>& sessions,
                                          const std::string& name, log::EventLog& events,
                                          std::chrono::milliseconds patience) {
  std::vector<Session*> writable;
  for (const auto& session : sessions) {
    if (session->writable()) writable.push_back(session.get());
  }
  layer::Checkpoint checkpoint;
  checkpoint.name = name;
  const auto take = [&]() -> Status {
    if (writable.empty()) return Error("checkpoint: nothing here can be written", EROFS);
    TRY_ASSIGN(checkpoint.id, new_id());
    const auto until = steady_clock::now() + patience;
    for (Session* session : writable) session->fetch_mapped_writes(patience);
    // Before anybody has to wait for it.
    TRY(writable.front()->sync_disk());
    Standstill standstill(writable);
    TRY(standstill.reach(until));
    checkpoint.time_ns = now_ns();
    return freeze_all(writable, checkpoint);
  };
  const auto begin = steady_clock::now();
  const Status taken = take();
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin);
  Json fields = {{"verdict", taken.ok() ? "allow" : "error"},
                 {"checkpoint.id", checkpoint.id},
                 {"name", name},
                 {"duration_ms", took.count()}};
  if (!taken.ok()) fields["message"] = taken.error().message();
  (void)events.write("checkpoint", fields).ok();
  if (!taken.ok()) return taken.error();
  return checkpoint;
}

}  // namespace cofferdam::fsproxy
