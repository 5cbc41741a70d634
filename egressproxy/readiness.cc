#include "egressproxy/readiness.h"

#include "common/os/pipes.h"

namespace cofferdam::egressproxy {
namespace {

std::size_t index_of(Way way) {
  return static_cast<std::size_t>(way);
}

bool is_ready(const Readiness::Watch& watch, Way way) {
  return watch.ready[index_of(way)] || watch.ended[index_of(way)];
}

[[noreturn]] void fail(const Error& error) {
  throw boost::system::system_error(ENFILE, boost::system::system_category(), error.message());
}

}  // namespace

const asio::execution_context::id Readiness::id;

Readiness::Readiness(asio::execution_context& context)
    : asio::execution_context::service(context),
      executor_(static_cast<asio::io_context&>(context).get_executor()) {
  auto epoll = os::Epoll::create();
  if (!epoll) fail(epoll.error());
  epoll_.emplace(std::move(*epoll));
  auto copy = os::duplicate_fd(epoll_->fd());
  if (!copy) fail(copy.error());
  descriptor_.emplace(static_cast<asio::io_context&>(context), copy->release());
}

Readiness::Watch* Readiness::watch(int fd) {
  if (free_ == nullptr) free_ = &all_.emplace_back();
  Watch* made = std::exchange(free_, free_->next);
  *made = Watch{};
  made->fd = fd;
  return made;
}

void Readiness::forget(Watch* watch) {
  cancel(*watch);
  watch->forgotten = true;
  // An event at hand may still point here.
  Watch*& list = handing_out_ ? forgotten_ : free_;
  watch->next = std::exchange(list, watch);
}

void Readiness::recycle() {
  while (forgotten_ != nullptr) {
    Watch* one = std::exchange(forgotten_, forgotten_->next);
    one->next = std::exchange(free_, one);
  }
}

void Readiness::wait(Watch* watch, Way way, Waiter& waiter) {
  if (watch == nullptr || !register_for(*watch, way)) return tell_later(waiter, false);
  if (is_ready(*watch, way)) return tell_later(waiter, true);
  watch->waiters[index_of(way)] = &waiter;
  ++waiting_;
  arm();
}

bool Readiness::register_for(Watch& watch, Way way) {
  const bool writes = way == Way::kWrite;
  if (!watch.registered) {
    watch.registered = epoll_->add(watch.fd, &watch, writes) == 0;
    watch.tells_writes = writes;
    return watch.registered;
  }
  if (writes && !watch.tells_writes) {
    watch.tells_writes = epoll_->modify(watch.fd, &watch, true) == 0;
    return watch.tells_writes;
  }
  return true;
}

void Readiness::cancel(Watch& watch) {
  for (Waiter*& waiter : watch.waiters) {
    if (waiter != nullptr) end_wait(waiter);
  }
}

void Readiness::cancel(Watch& watch, const Waiter& waiter) {
  for (Waiter*& one : watch.waiters) {
    if (one == &waiter) end_wait(one);
  }
}

void Readiness::end_wait(Waiter*& waiter) {
  tell_later(*std::exchange(waiter, nullptr), false);
  // A loop that has nothing else to do ends.
  if (--waiting_ == 0 && armed_) descriptor_->cancel();
}

void Readiness::note_exhausted(Watch& watch, Way way) {
  watch.ready[index_of(way)] = false;
}

void Readiness::note_part(Watch& watch, Way way) {
  if (way == Way::kWrite || !watch.urgent) note_exhausted(watch, way);
}

void Readiness::arm() {
  if (armed_ || handing_out_ || waiting_ == 0) return;
  armed_ = true;
  descriptor_->async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code&) {
    armed_ = false;
    hand_out();
    arm();
  });
}

void Readiness::hand_out() {
  std::array<os::Epoll::Event, kAtOnce> events;
  handing_out_ = true;
  const auto taken = epoll_->take(events);
  // First what is known, so that nobody is told of what another has taken meanwhile.
  for (const os::Epoll::Event& event : taken) {
    Watch& watch = *static_cast<Watch*>(event.tag);
    watch.ready = {watch.ready[0] || event.readable, watch.ready[1] || event.writable};
    watch.urgent = watch.urgent || event.urgent;
    watch.ended = {watch.ended[0] || event.read_ended, watch.ended[1] || event.write_ended};
  }
  for (const os::Epoll::Event& event : taken) {
    Watch& watch = *static_cast<Watch*>(event.tag);
    tell(watch, Way::kRead);
    tell(watch, Way::kWrite);
  }
  handing_out_ = false;
  recycle();
}

void Readiness::tell(Watch& watch, Way way) {
  if (watch.forgotten || !is_ready(watch, way)) return;
  Waiter* waiter = std::exchange(watch.waiters[index_of(way)], nullptr);
  if (waiter == nullptr) return;
  --waiting_;
  waiter->on_ready(true);
}

void Readiness::tell_later(Waiter& waiter, bool ready) {
  due_.push_back({&waiter, ready});
  if (posted_) return;
  posted_ = true;
  asio::post(executor_, [this] { tell_due(); });
}

void Readiness::tell_due() {
  posted_ = false;
  const std::vector<Due> due = std::exchange(due_, {});
  for (const Due& one : due) one.waiter->on_ready(one.ready);
}

void Readiness::shutdown() {
  posted_ = true;  // nothing is posted any more
  armed_ = false;
  // What is abandoned may close sockets, for which others wait.
  for (Watch& watch : all_) cancel(watch);
  while (!due_.empty()) {
    Waiter* waiter = due_.back().waiter;
    due_.pop_back();
    waiter->abandon();
  }
  descriptor_.reset();
}

}  // namespace cofferdam::egressproxy
