// What all relays of one event loop share: buffers and pipes to borrow, and one clock for silence.
#pragma once

#include <boost/asio/execution_context.hpp>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/os/socket_io.h"
#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

// Bytes that were read and that the receiver has not taken yet.
class RelayBuffer final {
 public:
  static constexpr std::size_t kSize = 131072;
  std::span<char> space() { return {bytes_.get(), kSize}; }
  std::span<const char> rest() const { return {bytes_.get() + begin_, end_ - begin_}; }
  void hold(std::size_t count) {
    begin_ = 0;
    end_ = count;
  }
  void drop(std::size_t count) { begin_ += count; }

 private:
  std::unique_ptr<char[]> bytes_{
      new char[kSize]};  // not cleared: nothing is sent but what was read
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// Who is to be told when nothing has moved for a time.
class Quiet {
 public:
  virtual ~Quiet() = default;
  virtual void on_silence() = 0;
};

// One per io_context (asio::use_service).
class RelayPool final : public asio::execution_context::service {
 public:
  using key_type = RelayPool;
  static const asio::execution_context::id id;
  explicit RelayPool(asio::execution_context& context);

  std::unique_ptr<RelayBuffer> take_buffer();
  void give_back(std::unique_ptr<RelayBuffer> buffer);
  // Null when all pipes are in use, or the kernel gives none.
  std::unique_ptr<os::SplicePipe> take_pipe();
  // Only an empty one is kept.
  void give_back(std::unique_ptr<os::SplicePipe> pipe);

  // The one list of those that wait, in the order of their last movement: to move costs a relinking
  // and no timer. All have the same `time`.
  struct Watch {
    Quiet* who = nullptr;
    Clock::time_point moved;
    milliseconds time{};
  };
  using Watches = std::list<Watch>;
  Watches::iterator watch(Quiet& who, milliseconds time);
  void moved(Watches::iterator watch);
  void unwatch(Watches::iterator watch);

 private:
  void shutdown() override;
  void arm();
  void sweep();

  std::vector<std::unique_ptr<RelayBuffer>> buffers_;
  std::vector<std::unique_ptr<os::SplicePipe>> pipes_;
  std::size_t pipes_out_ = 0;
  Watches watches_;  // longest silent first
  std::optional<asio::steady_timer> timer_;
  bool armed_ = false;
};

}  // namespace cofferdam::egressproxy
