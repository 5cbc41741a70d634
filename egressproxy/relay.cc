#include "egressproxy/relay.h"

#include <algorithm>
#include <array>

#include "egressproxy/connections.h"
#include "egressproxy/relay_pool.h"

namespace cofferdam::egressproxy {
namespace {

using os::Moved;
using os::Moving;

// Reads of one way before others have their turn.
constexpr int kTurns = 4;
// Whole buffers in a row after which a way is moved by splice(2), and how little a turn may move
// before it is copied again: a pipe costs two calls where a small read costs none.
constexpr int kHotReads = 4;
constexpr std::size_t kColdTurn = 65536;
constexpr std::size_t kSpliceAtOnce = 1U << 20U;
constexpr int kHalfClosedPart = 6;

// The handler of whoever waits for the end, without its type.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void complete() = 0;
};

template <typename Handler>
class CompletionOf final : public Completion {
 public:
  explicit CompletionOf(Handler handler) : handler_(std::move(handler)) {}
  void complete() override {
    Handler handler = std::move(handler_);
    handler();
  }

 private:
  Handler handler_;
};

class Run final : public Quiet {
 public:
  Run(RelayPool& pool, Stream& downstream, Stream& upstream, milliseconds idle)
      : pool_(pool),
        idle_(idle),
        ways_{Course{*this, downstream, upstream}, Course{*this, upstream, downstream}} {
    watch_ = pool_.watch(*this, idle);
  }
  ~Run() override {
    pool_.unwatch(watch_);
    for (Course& way : ways_) {
      pool_.give_back(std::move(way.buffer));
      pool_.give_back(std::move(way.pipe));
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void start(std::unique_ptr<Completion> completion);
  void on_silence() override { fail(); }
  Relayed relayed() const { return {ways_[0].moved, ways_[1].moved}; }

 private:
  struct Course final : Waiter {
    Course(Run& whole, Stream& source, Stream& sink) : run(whole), from(source), to(sink) {}
    void on_ready(bool ready) override { run.on_ready(*this, ready); }
    void abandon() override { run.abandon(); }
    Run& run;
    Stream& from;
    Stream& to;
    std::uint64_t moved = 0;
    std::unique_ptr<RelayBuffer> buffer;   // held while the sink does not take it
    std::unique_ptr<os::SplicePipe> pipe;  // the same, and between turns of a hot way
    int full_reads = 0;
    bool ended = false;
  };
  // What a step has come to.
  enum class Step : std::uint8_t { kMore, kWaitToRead, kWaitToWrite, kEnded, kSpent, kFailed };

  void pump(Course& way);
  void proceed(Course& way, Step step);
  Step flush(Course& way);
  Step copy(Course& way);
  Step splice(Course& way);
  // How much of `wanted` the budget lets through; 0 is followed by look_past_budget().
  static std::size_t allowed(const Course& way, std::size_t wanted);
  static void charge(Course& way, std::size_t count);
  static Step look_past_budget(Course& way);
  void wait(Course& way, Way what);
  void on_ready(Course& way, bool ready);
  void abandon();
  void end(Course& way);
  void cut(Course& way);
  Async<void> cut_after(Stream& sink);
  void fail();
  void settle();

  RelayPool& pool_;
  milliseconds idle_;
  std::array<Course, 2> ways_;  // up, down
  RelayPool::Watches::iterator watch_;
  std::unique_ptr<Completion> completion_;
  unsigned waiting_ = 0;
  bool failed_ = false;
};

// Neither is in the middle of a step when this is called last: it may be destroyed inside.
void Run::settle() {
  const bool over = failed_ || (ways_[0].ended && ways_[1].ended);
  if (!over || waiting_ > 0 || !completion_) return;
  const std::unique_ptr<Completion> completion = std::move(completion_);
  completion->complete();
}

void Run::start(std::unique_ptr<Completion> completion) {
  for (Course& way : ways_) {
    const Step step = failed_ ? Step::kFailed : flush(way);
    proceed(way, step == Step::kMore ? Step::kWaitToRead : step);
  }
  completion_ = std::move(completion);
  // Never inside of who starts it.
  if (waiting_ == 0) asio::post(ways_[0].from.executor(), [this] { settle(); });
}

void Run::fail() {
  failed_ = true;
  for (Course& way : ways_) way.from.abort();
}

// The last end needs no word of its own: the connections are closed next.
void Run::end(Course& way) {
  way.ended = true;
  pool_.give_back(std::move(way.buffer));
  pool_.give_back(std::move(way.pipe));
  if (ways_[0].ended && ways_[1].ended) return;
  way.to.shutdown_send();
  pool_.unwatch(watch_);
  watch_ = pool_.watch(*this, idle_ / kHalfClosedPart);
}

std::size_t Run::allowed(const Course& way, std::size_t wanted) {
  const std::uint64_t left = std::min(way.from.may_read(), way.to.may_write());
  return static_cast<std::size_t>(std::min<std::uint64_t>(wanted, left));
}

// When it is read: others may use the same budget before it is written.
void Run::charge(Course& way, std::size_t count) {
  way.from.note_read(count);
  way.to.note_written(count);
}

// With nothing left, an orderly end may still come.
Run::Step Run::look_past_budget(Course& way) {
  switch (way.from.socket().peek().state) {
    case Moving::kMoved:
      return Step::kSpent;
    case Moving::kWouldBlock:
      return Step::kWaitToRead;
    case Moving::kEnd:
      return Step::kEnded;
    case Moving::kFailed:
      break;
  }
  return Step::kFailed;
}

Async<void> Run::cut_after(Stream& sink) {
  co_await sink.flush();
  for (Course& way : ways_) {
    if (Connection* connection = way.from.connection()) connection->end_spent();
  }
}

// What was let through arrives before the reset that follows.
void Run::cut(Course& way) {
  ++waiting_;
  asio::co_spawn(way.to.executor(), cut_after(way.to), [this](std::exception_ptr) {
    --waiting_;
    if (!failed_) fail();
    settle();
  });
}

void Run::wait(Course& way, Way what) {
  ++waiting_;
  const bool to_write = what == Way::kWrite;
  if (!to_write) pool_.give_back(std::move(way.pipe));  // it is empty
  (to_write ? way.to : way.from).socket().wait(what, way);
}

void Run::on_ready(Course& way, bool ready) {
  --waiting_;
  if (!failed_ && !ready) fail();
  if (!failed_) {
    pool_.moved(watch_);
    pump(way);
  }
  settle();
}

// The frame of who waits for the end owns this.
void Run::abandon() {
  if (--waiting_ == 0) const std::unique_ptr<Completion> last = std::move(completion_);
}

Run::Step Run::flush(Course& way) {
  Socket& sink = way.to.socket();
  const auto step_of = [](const Moved& moved) {
    return moved.state == Moving::kWouldBlock ? Step::kWaitToWrite : Step::kFailed;
  };
  while (!way.from.buffered().empty()) {
    // What was read is charged as read already.
    const auto size = static_cast<std::size_t>(
        std::min<std::uint64_t>(way.from.buffered().size(), way.to.may_write()));
    if (size == 0) return Step::kSpent;
    const Moved sent = sink.send(way.from.buffered().substr(0, size));
    if (sent.state != Moving::kMoved) return step_of(sent);
    way.moved += sent.count;
    way.to.note_written(sent.count);
    way.from.consume(sent.count);
  }
  while (way.buffer && !way.buffer->rest().empty()) {
    const Moved sent = sink.send(way.buffer->rest());
    if (sent.state != Moving::kMoved) return step_of(sent);
    way.moved += sent.count;
    way.buffer->drop(sent.count);
  }
  pool_.give_back(std::move(way.buffer));
  while (way.pipe && !way.pipe->empty()) {
    const Moved sent = sink.drain(*way.pipe);
    if (sent.state != Moving::kMoved) return step_of(sent);
    way.moved += sent.count;
  }
  return Step::kMore;
}

Run::Step Run::copy(Course& way) {
  if (allowed(way, 1) == 0) return look_past_budget(way);
  way.buffer = pool_.take_buffer();
  const std::size_t size = allowed(way, way.buffer->space().size());
  const Moved read = way.from.socket().receive(way.buffer->space().first(size));
  way.buffer->hold(read.count);
  switch (read.state) {
    case Moving::kWouldBlock:
      pool_.give_back(std::move(way.buffer));
      return Step::kWaitToRead;
    case Moving::kEnd:
      return Step::kEnded;
    case Moving::kFailed:
      return Step::kFailed;
    case Moving::kMoved:
      break;
  }
  charge(way, read.count);
  const bool full = read.count == size;
  way.full_reads = full ? way.full_reads + 1 : 0;
  const Step written = flush(way);
  if (written != Step::kMore) return written;
  return full ? Step::kMore : Step::kWaitToRead;  // a short read has emptied the socket
}

Run::Step Run::splice(Course& way) {
  const std::size_t size = allowed(way, kSpliceAtOnce);
  if (size == 0) return look_past_budget(way);
  if (!way.pipe) way.pipe = pool_.take_pipe();
  if (!way.pipe) {
    way.full_reads = 0;
    return Step::kMore;
  }
  const Moved filled = way.from.socket().fill(*way.pipe, size);
  switch (filled.state) {
    case Moving::kMoved:
      break;
    case Moving::kWouldBlock:
      pool_.give_back(std::move(way.pipe));
      return Step::kWaitToRead;
    case Moving::kEnd:
      return Step::kEnded;
    case Moving::kFailed:
      return Step::kFailed;
  }
  charge(way, filled.count);
  if (filled.count < kColdTurn) way.full_reads = 0;
  const Step written = flush(way);
  return written;
}

void Run::pump(Course& way) {
  Step step = flush(way);
  for (int turn = 0; step == Step::kMore && turn < kTurns; ++turn) {
    step = way.full_reads >= kHotReads ? splice(way) : copy(way);
  }
  proceed(way, step);
}

void Run::proceed(Course& way, Step step) {
  switch (step) {
    case Step::kMore:  // the others' turn; the wait ends at once
    case Step::kWaitToRead:
      wait(way, Way::kRead);
      return;
    case Step::kWaitToWrite:
      wait(way, Way::kWrite);
      return;
    case Step::kEnded:
      end(way);
      return;
    case Step::kSpent:
      cut(way);
      return;
    case Step::kFailed:
      fail();
      return;
  }
}

}  // namespace

Async<Relayed> relay(Stream& downstream, Stream& upstream, milliseconds idle) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  auto& pool = asio::use_service<RelayPool>(
      static_cast<asio::io_context&>(asio::query(executor, asio::execution::context)));
  Run run(pool, downstream, upstream, idle);
  const auto initiate = [&run](auto handler) {
    run.start(std::make_unique<CompletionOf<decltype(handler)>>(std::move(handler)));
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(initiate,
                                                                        asio::use_awaitable);
  co_return run.relayed();
}

Async<void> carry(Recorder& recorder, Stream& downstream, std::unique_ptr<Handover> handover) {
  co_await relay(downstream, *handover->upstream, handover->idle);
  EgressRecord& record = handover->record;
  conclude(record, *handover->upstream);
  recorder.record(record);
}

}  // namespace cofferdam::egressproxy
