#include "tests/bench/egress/dns_load.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/egress/event_loop.h"

namespace cofferdam::bench {
namespace {

constexpr std::size_t kIds = 65536;
constexpr std::chrono::milliseconds kLostAfter{500};
constexpr std::chrono::milliseconds kGrace{300};

class Questions final {
 public:
  explicit Questions(const LoadOptions& options)
      : name_(options.required("name")),
        rcode_(static_cast<int>(options.number("rcode", 0))),
        asked_(kIds) {
    const SocketAt at = socket_at(options.required("to"));
    fd_ = os::UniqueFd(::socket(at.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd_ || ::connect(fd_.get(), at.get(), at.size) != 0) die("connect");
    const int size = 4 << 20;
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    loop_.add(fd_.get(), EPOLLIN, 0);
  }

  void run(std::chrono::milliseconds time, std::uint64_t rate, std::size_t window);

 private:
  void ask(Clock::time_point due);
  void receive();
  void give_up_on(Clock::time_point before);
  std::string packet();

  std::string name_;
  int rcode_;
  os::UniqueFd fd_;
  EventLoop loop_;
  std::vector<std::optional<Clock::time_point>> asked_;  // by id
  std::size_t under_way_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t wrong_ = 0;
  std::uint64_t lost_ = 0;
  Latencies latencies_;
};

std::string Questions::packet() {
  std::string name = name_;
  std::uint64_t number = number_;
  for (auto c = name.rbegin(); c != name.rend(); ++c) {
    if (*c != '#') continue;
    *c = static_cast<char>('0' + number % 10);
    number /= 10;
  }
  const auto id = static_cast<std::uint16_t>(number_);
  std::string bytes{static_cast<char>(id >> 8U), static_cast<char>(id & 0xffU)};
  bytes += std::string("\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 10);
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    bytes += static_cast<char>(end - begin);
    bytes.append(name, begin, end - begin);
    begin = end + 1;
  }
  return bytes + std::string("\x00\x00\x01\x00\x01", 5);
}

void Questions::ask(Clock::time_point due) {
  const std::string bytes = packet();
  auto& place = asked_[number_ % kIds];
  if (place) {
    ++lost_;
    --under_way_;
  }
  place = due;
  ++number_;
  ++under_way_;
  if (::send(fd_.get(), bytes.data(), bytes.size(), 0) < 0 && errno != EAGAIN) die("send");
}

void Questions::receive() {
  std::array<unsigned char, 2048> buffer{};
  while (true) {
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (count < 0) return;
    if (count < 12) continue;
    auto& place = asked_[static_cast<std::size_t>(buffer[0] << 8U | buffer[1])];
    if (!place) continue;
    latencies_.add(Clock::now() - *place);
    place.reset();
    --under_way_;
    ++done_;
    if ((buffer[3] & 0x0fU) != static_cast<unsigned>(rcode_)) ++wrong_;
  }
}

void Questions::give_up_on(Clock::time_point before) {
  for (auto& place : asked_) {
    if (!place || *place > before) continue;
    place.reset();
    --under_way_;
    ++lost_;
  }
}

void Questions::run(std::chrono::milliseconds time, std::uint64_t rate, std::size_t window) {
  const Clock::time_point started = Clock::now();
  const Clock::time_point end = started + time;
  const std::chrono::nanoseconds gap(rate == 0 ? 0 : 1'000'000'000 / rate);
  Clock::time_point next = started;
  Clock::time_point heard = started;
  Clock::time_point now = started;
  while (now < end) {
    if (rate == 0) {
      while (under_way_ < window) ask(Clock::now());
      next = now + kLostAfter;
    } else {
      for (; next <= now; next += gap) ask(next);
    }
    if (!loop_.wait(std::min(next, end) - now).empty()) {
      receive();
      heard = Clock::now();
    }
    now = Clock::now();
    if (now - heard > kLostAfter) {
      give_up_on(now - kLostAfter);
      heard = now;
    }
  }
  const std::chrono::duration<double> taken = now - started;
  const std::uint64_t done = done_;
  if (rate != 0 && !loop_.wait(kGrace).empty()) receive();
  if (rate != 0) lost_ += under_way_;
  Report report;
  report.add("count", done);
  report.add("per_second", static_cast<double>(done) / taken.count());
  report.add("lost", lost_);
  report.add("wrong", wrong_);
  report.add("p50_us", static_cast<std::uint64_t>(latencies_.at(500)));
  report.add("p99_us", static_cast<std::uint64_t>(latencies_.at(990)));
  report.print();
}

}  // namespace

void run_dns(const LoadOptions& options) {
  Questions questions(options);
  questions.run(options.duration(), options.number("rate", 0), options.number("window", 64));
}

}  // namespace cofferdam::bench
