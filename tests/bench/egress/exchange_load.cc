#include "tests/bench/egress/exchange_load.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>

#include "common/os/sockets.h"
#include "tests/bench/egress/event_loop.h"

namespace cofferdam::bench {
namespace {

constexpr std::size_t kReadSize = 65536;
constexpr std::size_t kReplySize = 128;  // of the server's answer to a first message
constexpr std::chrono::milliseconds kGrace{2000};
constexpr std::uint64_t kMaxErrors = 20000;  // past it nothing that is measured means anything

// One connection and how far its exchange has come.
struct Slot {
  os::UniqueFd fd;
  bool busy = false;
  bool connected = false;
  bool used = false;  // an exchange has ended on this connection
  std::size_t step = 0;
  std::size_t sent = 0;
  std::string head;
  bool in_body = false;
  std::uint64_t left = 0;  // bytes of the answer still to come
  bool last = false;       // the server will close
  Clock::time_point due;
};

bool says_close(const std::string& head) {
  return ::strcasestr(head.c_str(), "\r\nconnection: close\r\n") != nullptr;
}

std::uint64_t content_length(const std::string& head) {
  const char* field = ::strcasestr(head.c_str(), "\r\ncontent-length:");
  return field == nullptr ? 0 : std::strtoull(field + 17, nullptr, 10);
}

class Exchanges final {
 public:
  Exchanges(const Script& script, std::size_t connections)
      : script_(script), at_(socket_at(script.connect_to)), slots_(connections) {
    for (std::size_t i = connections; i > 0; --i) free_.push_back(i - 1);
  }

  void run(std::chrono::milliseconds time, std::uint64_t rate);
  void open_all(std::size_t at_once);
  void report(std::chrono::nanoseconds time);
  std::uint64_t errors() const { return errors_; }
  std::uint64_t done() const { return done_; }

 private:
  void begin(std::size_t index, Clock::time_point due);
  void connect(std::size_t index);
  void advance(std::size_t index, std::uint32_t events);
  bool send(std::size_t index);
  bool receive(std::size_t index);
  // Whether the step's answer is whole; false with fd closed after a wrong one.
  bool take(Slot& slot, std::string_view bytes, bool& wrong);
  void finish(std::size_t index);
  void fail(std::size_t index);
  void release(std::size_t index);
  void drive(std::chrono::nanoseconds timeout);

  const Script& script_;
  SocketAt at_;
  EventLoop loop_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
  std::deque<Clock::time_point> waiting_;  // due, and no slot was free
  std::array<char, kReadSize> buffer_{};
  Latencies latencies_;
  std::uint64_t done_ = 0;
  std::uint64_t errors_ = 0;
  std::uint64_t reconnects_ = 0;
  bool repeat_ = false;  // a slot that is free begins again at once
  bool hold_ = false;    // what is finished stays open
};

void Exchanges::connect(std::size_t index) {
  Slot& slot = slots_[index];
  slot.fd = begin_connect(at_);
  slot.connected = false;
  slot.used = false;
  loop_.add(slot.fd.get(), EPOLLOUT, index);
}

void Exchanges::begin(std::size_t index, Clock::time_point due) {
  Slot& slot = slots_[index];
  slot.busy = true;
  slot.due = due;
  slot.step = slot.sent = 0;
  slot.head.clear();
  slot.in_body = false;
  slot.left = 0;
  if (!slot.fd) {
    connect(index);
    return;
  }
  if (!send(index)) fail(index);
}

bool Exchanges::send(std::size_t index) {
  Slot& slot = slots_[index];
  const Step& step = script_.steps[slot.step];
  const ssize_t count = ::send(slot.fd.get(), step.bytes.data() + slot.sent,
                               step.bytes.size() - slot.sent, MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN;
  slot.sent += static_cast<std::size_t>(count);
  if (slot.sent < step.bytes.size()) return true;
  if (step.expect == Step::Expect::kBytes) {
    slot.in_body = true;
    slot.left = step.count;
  }
  return true;
}

bool Exchanges::take(Slot& slot, std::string_view bytes, bool& wrong) {
  const Step& step = script_.steps[slot.step];
  if (!slot.in_body) {
    slot.head += bytes;
    const auto end = slot.head.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::uint64_t extra = slot.head.size() - end - 4;
    int status = 0;
    (void)std::from_chars(slot.head.data() + 9, slot.head.data() + 12, status);
    slot.head.resize(end + 4);
    if (status != step.status) {
      wrong = true;
      return false;
    }
    slot.last = says_close(slot.head);
    slot.left = step.expect == Step::Expect::kResponse ? content_length(slot.head) : 0;
    slot.in_body = true;
    slot.left -= std::min(slot.left, extra);
    return slot.left == 0;
  }
  slot.left -= std::min<std::uint64_t>(slot.left, bytes.size());
  return slot.left == 0;
}

// False when the connection is of no use any more.
bool Exchanges::receive(std::size_t index) {
  Slot& slot = slots_[index];
  const ssize_t count = ::recv(slot.fd.get(), buffer_.data(), buffer_.size(), 0);
  if (count < 0 && errno == EAGAIN) return true;
  if (count <= 0) return false;
  if (!slot.busy) return true;
  bool wrong = false;
  if (!take(slot, {buffer_.data(), static_cast<std::size_t>(count)}, wrong)) return !wrong;
  slot.head.clear();
  slot.in_body = false;
  slot.sent = 0;
  if (++slot.step < script_.steps.size()) return send(index);
  finish(index);
  return true;
}

void Exchanges::finish(std::size_t index) {
  Slot& slot = slots_[index];
  ++done_;
  latencies_.add(Clock::now() - slot.due);
  slot.busy = false;
  slot.used = true;
  if (hold_) return;
  if (!script_.keep || slot.last) {
    if (script_.keep) ++reconnects_;
    slot.fd.reset();
  }
  release(index);
}

void Exchanges::fail(std::size_t index) {
  Slot& slot = slots_[index];
  slot.fd.reset();
  if (!slot.busy) return;  // a kept connection that the server has ended
  if (slot.used && slot.step == 0) {
    ++reconnects_;
    begin(index, slot.due);
    return;
  }
  if (++errors_ > kMaxErrors) {
    errno = 0;
    die("too many exchanges fail");
  }
  slot.busy = false;
  if (!hold_) release(index);
}

void Exchanges::release(std::size_t index) {
  if (!waiting_.empty()) {
    const Clock::time_point due = waiting_.front();
    waiting_.pop_front();
    begin(index, due);
  } else if (repeat_) {
    begin(index, Clock::now());
  } else {
    free_.push_back(index);
  }
}

void Exchanges::advance(std::size_t index, std::uint32_t events) {
  Slot& slot = slots_[index];
  if (!slot.fd) return;
  if (!slot.connected) {
    int error = 0;
    socklen_t size = sizeof error;
    (void)::getsockopt(slot.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      fail(index);
      return;
    }
    slot.connected = true;
    loop_.change(slot.fd.get(), EPOLLIN, index);
    if (!send(index)) fail(index);
    return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !receive(index)) fail(index);
}

void Exchanges::drive(std::chrono::nanoseconds timeout) {
  for (const epoll_event& event : loop_.wait(timeout)) {
    advance(static_cast<std::size_t>(event.data.u64), event.events);
  }
}

void Exchanges::run(std::chrono::milliseconds time, std::uint64_t rate) {
  const Clock::time_point started = Clock::now();
  const Clock::time_point end = started + time;
  repeat_ = rate == 0;
  if (repeat_) {
    const std::vector<std::size_t> all = std::exchange(free_, {});
    for (const std::size_t index : all) begin(index, Clock::now());
  }
  const std::chrono::nanoseconds gap(rate == 0 ? 0 : 1'000'000'000 / rate);
  Clock::time_point next = rate == 0 ? end : started;
  while (Clock::now() < end) {
    drive(std::min(next, end) - Clock::now());
    while (next < end && next <= Clock::now()) {
      if (free_.empty()) {
        waiting_.push_back(next);
      } else {
        const std::size_t index = free_.back();
        free_.pop_back();
        begin(index, next);
      }
      next += gap;
    }
  }
  const auto taken = Clock::now() - started;
  const std::uint64_t done = done_;
  repeat_ = false;
  // What was due and has not come counts with the time it has taken so far.
  const Clock::time_point patience = Clock::now() + kGrace;
  if (rate != 0) {
    while (free_.size() < slots_.size() && Clock::now() < patience) {
      drive(std::chrono::milliseconds(10));
    }
    for (const Slot& slot : slots_) {
      if (slot.busy) latencies_.add(Clock::now() - slot.due);
    }
    for (const auto& due : waiting_) latencies_.add(Clock::now() - due);
  }
  done_ = done;
  report(taken);
}

void Exchanges::report(std::chrono::nanoseconds time) {
  Report report;
  report.add("count", done_);
  report.add("per_second", static_cast<double>(done_) * 1e9 / static_cast<double>(time.count()));
  report.add("errors", errors_);
  report.add("reconnects", reconnects_);
  report.add("p50_us", static_cast<std::uint64_t>(latencies_.at(500)));
  report.add("p99_us", static_cast<std::uint64_t>(latencies_.at(990)));
  report.print();
}

void Exchanges::open_all(std::size_t at_once) {
  hold_ = true;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  std::size_t begun = 0;
  while (done_ + errors_ < slots_.size() && Clock::now() < end) {
    while (begun < slots_.size() && begun - done_ - errors_ < at_once) begin(begun++, Clock::now());
    drive(std::chrono::milliseconds(100));
  }
}

std::string host_and_port(const LoadOptions& options) {
  return options.required("host") + ":" + options.text("port", "443");
}

std::string connect_request(const std::string& authority) {
  return "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n";
}

}  // namespace

Script tunnel_script(const LoadOptions& options) {
  Script script{options.required("to"), {}, false};
  if (options.text("via", "connect") == "connect") {
    script.steps.push_back({connect_request(host_and_port(options)), Step::Expect::kHead, 200, 0});
  }
  script.steps.push_back(
      {client_hello(options.required("host")), Step::Expect::kBytes, 0, kReplySize});
  return script;
}

Script get_script(const LoadOptions& options) {
  const std::string host = options.required("host");
  const std::string origin = options.text("form", "absolute") == "absolute" ? "http://" + host : "";
  const std::string request = "GET " + origin + "/1k HTTP/1.1\r\nHost: " + host +
                              "\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\r\n";
  return {options.required("to"), {{request, Step::Expect::kResponse, 200, 0}}, true};
}

Script denial_script(const LoadOptions& options) {
  return {options.required("to"),
          {{connect_request(host_and_port(options)), Step::Expect::kResponse, 403, 0}},
          false};
}

void run_exchanges(const Script& script, const LoadOptions& options) {
  Exchanges exchanges(script, options.number("connections", 32));
  exchanges.run(options.duration(), options.number("rate", 0));
}

void hold_open(const Script& script, const LoadOptions& options) {
  (void)os::raise_descriptor_limit();
  Exchanges exchanges(script, options.number("connections", 1000));
  exchanges.open_all(options.number("at_once", 64));
  Report report;
  report.add("open", exchanges.done());
  report.add("errors", exchanges.errors());
  report.print();
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace cofferdam::bench
