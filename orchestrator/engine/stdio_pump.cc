#include "orchestrator/engine/stdio_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/os/files.h"
#include "common/os/pipes.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::size_t kReadBytes = 64U << 10U;
// A pipe that poll(2) calls writable takes this much without blocking (PIPE_BUF).
constexpr std::size_t kWriteBytes = 4096;
// How long something is held back that may become a secret: longer than one write takes, shorter
// than anybody who reads a prompt notices.
constexpr std::chrono::milliseconds kHold{100};
constexpr const char* kNoForms = R"({"version": 1, "forms": []})";
constexpr const char* kCutShort =
    "\ncofferdam: the limit of output was reached; what follows is dropped\n";
constexpr char kEndOfTransmission = '\x04';

bool is_regular_file(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

}  // namespace

Result<StdioPump> StdioPump::with_pipes(bool interactive) {
  StdioPump pump;
  if (interactive) {
    TRY_ASSIGN(os::Pipe input, os::make_pipe());
    TRY(os::set_nonblocking(input.write.get(), true));
    pump.workload_ends_.push_back(std::move(input.read));
    pump.inflow_.source = STDIN_FILENO;
    pump.inflow_.target = std::move(input.write);
  } else {
    TRY_ASSIGN(os::UniqueFd null, os::open_file("/dev/null", O_RDONLY));
    pump.workload_ends_.push_back(std::move(null));
  }
  for (int i = 0; i < 2; ++i) {
    TRY_ASSIGN(os::Pipe output, os::make_pipe());
    TRY(os::set_nonblocking(output.read.get(), true));
    pump.workload_ends_.push_back(std::move(output.write));
    auto& flow = pump.outflows_[static_cast<std::size_t>(i)];
    flow.source = std::move(output.read);
    flow.target = STDOUT_FILENO + i;
  }
  return pump;
}

Result<StdioPump> StdioPump::with_terminal(os::UniqueFd master, bool interactive) {
  StdioPump pump;
  TRY(os::set_nonblocking(master.get(), true));
  TRY_ASSIGN(pump.outflows_[0].source, os::duplicate_fd(master.get()));
  pump.outflows_[0].target = STDOUT_FILENO;
  if (interactive) {
    TRY_ASSIGN(pump.inflow_.target, os::duplicate_fd(master.get()));
    pump.inflow_.source = STDIN_FILENO;
    pump.inflow_.terminal = true;
    if (os::is_terminal(STDIN_FILENO)) {
      TRY_ASSIGN(os::RawTerminal raw, os::RawTerminal::enter(STDIN_FILENO));
      pump.raw_.emplace(std::move(raw));
    }
  }
  pump.master_ = std::move(master);
  pump.resize();
  return pump;
}

Status StdioPump::redact(const std::vector<secrets::KnownSecret>& known) {
  for (Outflow& flow : outflows_) {
    if (flow.target < 0) continue;
    const bool shown = os::is_terminal(flow.target);
    if (!shown && known.empty()) continue;
    TRY_ASSIGN(auto scanner, shown ? secrets::SecretScanner::built_in(known)
                                   : secrets::SecretScanner::make(kNoForms, known));
    scanners_.push_back(std::make_unique<const secrets::SecretScanner>(std::move(scanner)));
    flow.redactor.emplace(*scanners_.back());
  }
  return {};
}

std::optional<PollLoop::Clock::time_point> StdioPump::next_release() const {
  std::optional<PollLoop::Clock::time_point> next;
  for (const Outflow& flow : outflows_) {
    if (!flow.buffer.empty()) continue;  // it is the reader's turn
    if (flow.release_at && (!next || *flow.release_at < *next)) next = flow.release_at;
  }
  return next;
}

void StdioPump::release_held(PollLoop& loop) {
  for (Outflow& flow : outflows_) {
    if (!flow.release_at || *flow.release_at > PollLoop::Clock::now()) continue;
    if (!flow.buffer.empty()) continue;  // it is the reader's turn
    pass(flow, true);
    watch_output(loop, flow);
  }
}

// What was read, without its secrets; `ended`: and what was held back.
void StdioPump::pass(Outflow& flow, bool ended) {
  if (!flow.redactor) return take_from_limit(flow);
  std::string out;
  const auto take = [&](std::string_view bytes) {
    out += bytes;
    return Status();
  };
  (void)flow.redactor->feed(flow.buffer, take).ok();
  if (ended) (void)flow.redactor->finish(take).ok();
  flow.buffer = std::move(out);
  flow.release_at.reset();
  if (flow.redactor->holds_back()) flow.release_at = PollLoop::Clock::now() + kHold;
  take_from_limit(flow);
}

void StdioPump::take_from_limit(Outflow& flow) {
  if (!left_) return;
  if (flow.buffer.size() <= *left_) {
    *left_ -= flow.buffer.size();
    return;
  }
  flow.buffer.resize(static_cast<std::size_t>(*left_));
  *left_ = 0;
  if (!limited_) flow.buffer += kCutShort;
  limited_ = true;
}

bool StdioPump::took_the_limit() {
  return limited_ && !std::exchange(told_, true);
}

std::vector<int> StdioPump::workload_ends() const {
  std::vector<int> fds;
  for (const os::UniqueFd& fd : workload_ends_) fds.push_back(fd.get());
  return fds;
}

void StdioPump::start(PollLoop& loop) {
  workload_ends_.clear();
  for (Outflow& flow : outflows_) {
    if (flow.source) watch_output(loop, flow);
  }
  if (inflow_.source >= 0) watch_input(loop);
}

void StdioPump::resize() const {
  if (!master_) return;
  os::copy_window_size(os::is_terminal(STDIN_FILENO) ? STDIN_FILENO : STDOUT_FILENO, master_.get());
}

bool StdioPump::drained() const {
  return std::all_of(outflows_.begin(), outflows_.end(),
                     [](const Outflow& flow) { return !flow.source && flow.buffer.empty(); });
}

void StdioPump::drain(PollLoop& loop, std::optional<PollLoop::Clock::time_point> deadline,
                      const bool& give_up) {
  while (!drained() && !give_up && (!deadline || PollLoop::Clock::now() < *deadline)) {
    const auto release = next_release();
    const bool sooner = release && (!deadline || *release < *deadline);
    if (!loop.run_once(sooner ? release : deadline).ok()) break;
    release_held(loop);
  }
}

bool StdioPump::anything_present() const {
  return std::any_of(outflows_.begin(), outflows_.end(), [](const Outflow& flow) {
    if (!flow.buffer.empty() || flow.release_at) return true;
    pollfd entry{flow.source.get(), POLLIN, 0};
    return flow.source && ::poll(&entry, 1, 0) > 0;
  });
}

void StdioPump::drain_present(PollLoop& loop, const bool& give_up) {
  while (anything_present() && !give_up) {
    if (!loop.run_once(next_release()).ok()) break;
    release_held(loop);
  }
}

void StdioPump::stop(PollLoop& loop) {
  for (Outflow& flow : outflows_) {
    if (flow.source) loop.unwatch(flow.source.get());
    if (flow.target >= 0) loop.unwatch(flow.target);
    flow.source.reset();
    flow.buffer.clear();
  }
  end_input(loop);
  raw_.reset();
}

void StdioPump::watch_output(PollLoop& loop, Outflow& flow) {
  if (flow.buffer.empty()) {
    loop.unwatch(flow.target);
    if (flow.source) {
      loop.watch(flow.source.get(), POLLIN, [&](short) { read_output(loop, flow); });
    }
  } else {
    if (flow.source) loop.unwatch(flow.source.get());
    loop.watch(flow.target, POLLOUT, [&](short) { write_output(loop, flow); });
  }
}

void StdioPump::read_output(PollLoop& loop, Outflow& flow) {
  flow.buffer.resize(kReadBytes);
  const ssize_t got = ::read(flow.source.get(), flow.buffer.data(), flow.buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    flow.buffer.clear();
    return;
  }
  if (got <= 0) {  // a pty whose last slave has gone answers EIO
    flow.buffer.clear();
    loop.unwatch(flow.source.get());
    flow.source.reset();
    pass(flow, true);
  } else {
    flow.buffer.resize(static_cast<std::size_t>(got));
    pass(flow, false);
  }
  watch_output(loop, flow);
}

void StdioPump::write_output(PollLoop& loop, Outflow& flow) {
  const std::size_t size =
      is_regular_file(flow.target) ? flow.buffer.size() : std::min(flow.buffer.size(), kWriteBytes);
  const ssize_t put = ::write(flow.target, flow.buffer.data(), size);
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (put < 0) {
    // Nobody reads any more: the workload sees a closed pipe, as it would without us.
    loop.unwatch(flow.target);
    if (flow.source) loop.unwatch(flow.source.get());
    flow.source.reset();
    flow.buffer.clear();
    flow.release_at.reset();
    return;
  }
  passed_ += static_cast<std::uint64_t>(put);
  flow.buffer.erase(0, static_cast<std::size_t>(put));
  if (flow.buffer.empty()) watch_output(loop, flow);
}

void StdioPump::watch_input(PollLoop& loop) {
  if (inflow_.buffer.empty()) {
    loop.unwatch(inflow_.target.get());
    if (inflow_.source >= 0) {
      loop.watch(inflow_.source, POLLIN, [&](short) { read_input(loop); });
    }
    // A reader that is gone is noticed while there is nothing to write.
    if (!inflow_.terminal) {
      loop.watch(inflow_.target.get(), 0, [&](short) { end_input(loop); });
    }
  } else {
    loop.unwatch(inflow_.source);
    loop.watch(inflow_.target.get(), POLLOUT, [&](short) { write_input(loop); });
  }
}

void StdioPump::read_input(PollLoop& loop) {
  inflow_.buffer.resize(kReadBytes);
  const ssize_t got = ::read(inflow_.source, inflow_.buffer.data(), inflow_.buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    inflow_.buffer.clear();
    return;
  }
  if (got > 0) {
    inflow_.buffer.resize(static_cast<std::size_t>(got));
    watch_input(loop);
    return;
  }
  inflow_.buffer.clear();
  if (inflow_.terminal) {
    (void)!::write(inflow_.target.get(), &kEndOfTransmission, 1);
  }
  end_input(loop);
}

void StdioPump::write_input(PollLoop& loop) {
  const ssize_t put = ::write(inflow_.target.get(), inflow_.buffer.data(), inflow_.buffer.size());
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (put < 0) {
    end_input(loop);
    return;
  }
  inflow_.buffer.erase(0, static_cast<std::size_t>(put));
  if (inflow_.buffer.empty()) watch_input(loop);
}

void StdioPump::end_input(PollLoop& loop) {
  if (inflow_.source >= 0) loop.unwatch(inflow_.source);
  if (inflow_.target) loop.unwatch(inflow_.target.get());
  inflow_.source = -1;
  inflow_.target.reset();
  inflow_.buffer.clear();
}

}  // namespace cofferdam::orchestrator
