#include "egressproxy/deadline_wheel.h"

#include <algorithm>

namespace cofferdam::egressproxy {

const asio::execution_context::id DeadlineWheel::id;

DeadlineWheel::DeadlineWheel(asio::execution_context& context)
    : asio::execution_context::service(context) {
  timer_.emplace(static_cast<asio::io_context&>(context));
}

// The first turn that begins when `time` is over.
DeadlineWheel::Turn DeadlineWheel::turn_of(Clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()) / kSlot + 1;
}

Deadline*& DeadlineWheel::slot_of(Turn turn) {
  return slots_[static_cast<std::size_t>(turn) % kSlots];
}

void DeadlineWheel::link(Deadline*& list, Deadline& deadline) {
  deadline.next_ = list;
  if (list != nullptr) list->link_ = &deadline.next_;
  deadline.link_ = &list;
  list = &deadline;
}

void DeadlineWheel::unlink(Deadline& deadline) {
  if (deadline.link_ == nullptr) return;
  *deadline.link_ = deadline.next_;
  if (deadline.next_ != nullptr) deadline.next_->link_ = deadline.link_;
  deadline.link_ = nullptr;
  deadline.next_ = nullptr;
}

void DeadlineWheel::add(Deadline& deadline) {
  if (size_++ == 0) seen_ = turn_of(Clock::now()) - 1;
  const Turn turn = std::max(turn_of(deadline.due_), seen_ + 1);
  link(slot_of(turn), deadline);
  arm(std::min(turn, seen_ + static_cast<Turn>(kSlots)));
}

void DeadlineWheel::remove(Deadline& deadline) {
  if (deadline.link_ == nullptr) return;
  unlink(deadline);
  if (--size_ > 0 || !timer_) return;
  armed_.reset();
  timer_->cancel();  // a loop with nothing left to do may end
}

void DeadlineWheel::arm(Turn turn) {
  if (!timer_ || (armed_ && *armed_ <= turn)) return;
  armed_ = turn;
  timer_->expires_at(Clock::time_point(turn * kSlot));
  timer_->async_wait([this](const error_code& error) {
    if (error) return;
    armed_.reset();
    advance();
  });
}

void DeadlineWheel::arm_next() {
  for (Turn turn = seen_ + 1; size_ > 0 && turn <= seen_ + static_cast<Turn>(kSlots); ++turn) {
    if (slot_of(turn) == nullptr) continue;
    arm(turn);
    return;
  }
}

// Who is told may drop or set any deadline, also one that is due now: they are taken one by one.
void DeadlineWheel::advance() {
  const Clock::time_point now = Clock::now();
  const Turn until = turn_of(now) - 1;
  Deadline* due = nullptr;
  const Turn first = std::max(seen_ + 1, until - static_cast<Turn>(kSlots) + 1);
  for (Turn turn = first; turn <= until; ++turn) {
    Deadline* next = slot_of(turn);
    while (next != nullptr) {
      Deadline& deadline = *next;
      next = deadline.next_;
      // What was put off goes to where it belongs now.
      unlink(deadline);
      link(deadline.due_ > now ? slot_of(turn_of(deadline.due_)) : due, deadline);
    }
  }
  seen_ = std::max(seen_, until);
  while (due != nullptr) {
    Deadline& deadline = *due;
    remove(deadline);
    deadline.expired_ = true;
    const std::function<void()> on_expiry = std::move(deadline.on_expiry_);
    if (on_expiry) on_expiry();
  }
  arm_next();
}

void DeadlineWheel::shutdown() {
  timer_.reset();
}

}  // namespace cofferdam::egressproxy
