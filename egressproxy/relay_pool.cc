#include "egressproxy/relay_pool.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

constexpr std::size_t kKeptBuffers = 32;
// Descriptors are for tunnels; a tunnel that finds no pipe copies.
constexpr std::size_t kMaxPipes = 32;
constexpr std::size_t kPipeSize = 1U << 20U;
// How late silence may be noticed, in parts of the time allowed.
constexpr int kSweepsPerTime = 16;
constexpr milliseconds kShortestSweep{5};
constexpr milliseconds kLongestSweep{10000};

}  // namespace

const asio::execution_context::id RelayPool::id;

RelayPool::RelayPool(asio::execution_context& context) : asio::execution_context::service(context) {
  timer_.emplace(static_cast<asio::io_context&>(context));
}

std::unique_ptr<RelayBuffer> RelayPool::take_buffer() {
  if (buffers_.empty()) {
    if (large_ >= kMaxLarge) return std::make_unique<RelayBuffer>(RelayBuffer::kSmallSize);
    auto made = std::make_unique<RelayBuffer>(RelayBuffer::kSize);
    ++large_;
    return made;
  }
  std::unique_ptr<RelayBuffer> buffer = std::move(buffers_.back());
  buffers_.pop_back();
  return buffer;
}

void RelayPool::give_back(std::unique_ptr<RelayBuffer> buffer) {
  if (!buffer || buffer->space().size() != RelayBuffer::kSize) return;
  if (buffers_.size() < kKeptBuffers) {
    buffers_.push_back(std::move(buffer));
  } else {
    --large_;
  }
}

std::unique_ptr<os::SplicePipe> RelayPool::take_pipe() {
  if (!pipes_.empty()) {
    std::unique_ptr<os::SplicePipe> pipe = std::move(pipes_.back());
    pipes_.pop_back();
    return pipe;
  }
  if (pipes_out_ >= kMaxPipes) return nullptr;
  auto made = os::SplicePipe::open(kPipeSize);
  if (!made) return nullptr;
  ++pipes_out_;
  return std::make_unique<os::SplicePipe>(std::move(*made));
}

void RelayPool::give_back(std::unique_ptr<os::SplicePipe> pipe) {
  if (!pipe) return;
  if (pipe->empty()) {
    pipes_.push_back(std::move(pipe));
  } else {
    --pipes_out_;
  }
}

RelayPool::Watches::iterator RelayPool::watch(Quiet& who, milliseconds time) {
  Watches& list = watches_[time];
  const auto place = list.insert(list.end(), Watch{&who, Clock::now(), time});
  ++watching_;
  if (!armed_) arm();
  return place;
}

void RelayPool::moved(Watches::iterator watch) {
  watch->moved = Clock::now();
  Watches& list = watches_.find(watch->time)->second;
  list.splice(list.end(), list, watch);
}

void RelayPool::unwatch(Watches::iterator watch) {
  watches_.find(watch->time)->second.erase(watch);
  if (--watching_ == 0 && timer_) timer_->cancel();
}

void RelayPool::arm() {
  milliseconds shortest = kLongestSweep * kSweepsPerTime;
  for (const auto& [time, list] : watches_) {
    if (!list.empty()) shortest = std::min(shortest, time);
  }
  armed_ = true;
  timer_->expires_after(
      std::clamp<Clock::duration>(shortest / kSweepsPerTime, kShortestSweep, kLongestSweep));
  timer_->async_wait([this](const error_code& error) {
    armed_ = false;
    if (!error) sweep();
    if (watching_ > 0 && !armed_) arm();
  });
}

void RelayPool::sweep() {
  const Clock::time_point now = Clock::now();
  for (auto& [time, list] : watches_) {
    while (!list.empty() && list.front().moved + time <= now) {
      Quiet* who = list.front().who;
      moved(list.begin());  // told once
      who->on_silence();
    }
  }
}

void RelayPool::shutdown() {
  timer_.reset();
  pipes_.clear();
  buffers_.clear();
}

}  // namespace cofferdam::egressproxy
