#include "egressproxy/dns_tcp.h"

#include "egressproxy/dns_server.h"

namespace cofferdam::egressproxy {
namespace {

constexpr milliseconds kIdle = seconds(30);
constexpr std::size_t kMaxQuestion = 4096;     // bytes; no question of ours is longer
constexpr std::size_t kMaxWaiting = 64;        // questions of one connection that wait for a server
constexpr std::size_t kMaxUnsent = 1U << 18U;  // bytes of answers that the client does not take

class TcpQuestions final {
 public:
  TcpQuestions(Pipeline& pipeline, Stream& downstream, const asio::any_io_executor& executor)
      : pipeline_(pipeline),
        downstream_(downstream),
        wake_(executor, asio::steady_timer::time_point::max()),
        deadline_(executor, kIdle, [this] { downstream_.abort(); }) {}

  Async<void> run();

 private:
  enum class Next : std::uint8_t { kNone, kQuestion, kRefused };
  // The state of what is buffered; `size` of the message when it is a whole question.
  Next next(std::size_t& size) const;
  void begin(std::string_view packet);
  Async<void> finish(DnsQuestion question);
  void queue(std::string_view answer);
  Async<void> flush();
  // Until a question was answered.
  Async<void> wait();

  Pipeline& pipeline_;
  Stream& downstream_;
  asio::steady_timer wake_;
  Deadline deadline_;
  std::string unsent_;
  std::size_t waiting_ = 0;
  bool writing_ = false;
  bool broken_ = false;
};

TcpQuestions::Next TcpQuestions::next(std::size_t& size) const {
  const std::string_view bytes = downstream_.buffered();
  if (bytes.size() < 2) return Next::kNone;
  size = static_cast<unsigned char>(bytes[0]) * 256U + static_cast<unsigned char>(bytes[1]);
  if (size == 0 || size > kMaxQuestion) return Next::kRefused;
  return bytes.size() < size + 2 ? Next::kNone : Next::kQuestion;
}

void TcpQuestions::queue(std::string_view answer) {
  if (answer.empty()) return;
  unsent_ += static_cast<char>(answer.size() >> 8U);
  unsent_ += static_cast<char>(answer.size() & 0xffU);
  unsent_ += answer;
}

Async<void> TcpQuestions::flush() {
  if (writing_) co_return;
  writing_ = true;
  while (!unsent_.empty() && !broken_) {
    const std::string batch = std::exchange(unsent_, {});
    if (co_await downstream_.write(batch)) broken_ = true;
    deadline_.extend(kIdle);
  }
  writing_ = false;
  wake_.cancel();
}

Async<void> TcpQuestions::finish(DnsQuestion question) {
  const std::string answer = co_await question.later();
  queue(answer);
  co_await flush();
  --waiting_;
  wake_.cancel();
}

void TcpQuestions::begin(std::string_view packet) {
  DnsQuestion question(pipeline_, packet, false);
  if (question.now()) {
    queue(*question.now());
    return;
  }
  ++waiting_;
  asio::co_spawn(downstream_.executor(), finish(std::move(question)), asio::detached);
}

Async<void> TcpQuestions::wait() {
  wake_.expires_at(asio::steady_timer::time_point::max());
  co_await wake_.async_wait(kNoThrow);
}

Async<void> TcpQuestions::run() {
  while (!broken_) {
    std::size_t size = 0;
    const Next found = next(size);
    if (found == Next::kRefused) break;
    if (found == Next::kNone || unsent_.size() > kMaxUnsent) {
      co_await flush();
      if (broken_) break;
      if (found == Next::kNone) {
        if (co_await downstream_.read_more()) break;
      } else if (writing_) {
        co_await wait();
      }
      continue;
    }
    if (waiting_ >= kMaxWaiting) {
      co_await flush();
      if (waiting_ >= kMaxWaiting) co_await wait();
      continue;
    }
    begin(downstream_.buffered().substr(2, size));
    downstream_.consume(size + 2);
    deadline_.extend(kIdle);
  }
  // The other answers are still on their way, and refer to this object.
  while (waiting_ > 0 || writing_) co_await wait();
  co_await flush();
}

}  // namespace

Async<void> serve_dns_tcp(Pipeline& pipeline, Stream& downstream) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  TcpQuestions questions(pipeline, downstream, executor);
  co_await questions.run();
  downstream.close();
}

}  // namespace cofferdam::egressproxy
