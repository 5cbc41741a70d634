// What all relays of one event loop share: buffers and pipes to borrow, and one clock for silence.
#pragma once

#include <boost/asio/execution_context.hpp>
#include <cstddef>
#include <list>
#include <map>
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
  // What a buffer has when kSize is too much, because very many receivers do not take theirs.
  static constexpr std::size_t kSmallSize = 8192;
  explicit RelayBuffer(std::size_t size) : size_(size), bytes_(new char[size]) {}
  std::span<char> space() { return {bytes_.get(), size_}; }
  std::span<const char> rest() const { return {bytes_.get() + begin_, end_ - begin_}; }
  void hold(std::size_t count) {
    begin_ = 0;
    end_ = count;
  }
  void drop(std::size_t count) { begin_ += count; }

 private:
  std::size_t size_;
  std::unique_ptr<char[]> bytes_;  // not cleared: nothing is sent but what was read
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
  // The name is Asio's.
  static const asio::execution_context::id id;  // NOLINT(readability-identifier-naming)
  explicit RelayPool(asio::execution_context& context);

  // Buffers of kSize at once: a workload that opens thousands of tunnels and reads none of them
  // must not make this process hold a gigabyte.
  static constexpr std::size_t kMaxLarge = 512;
  std::unique_ptr<RelayBuffer> take_buffer();
  void give_back(std::unique_ptr<RelayBuffer> buffer);
  // Null when all pipes are in use, or the kernel gives none.
  std::unique_ptr<os::SplicePipe> take_pipe();
  // Only an empty one is kept.
  void give_back(std::unique_ptr<os::SplicePipe> pipe);

  // Those that wait, in one list for each `time` (there are few), in the order of their last
  // movement: to move costs a relinking and no timer.
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

  std::vector<std::unique_ptr<RelayBuffer>> buffers_;  // of kSize
  std::size_t large_ = 0;                              // of kSize, here and out
  std::vector<std::unique_ptr<os::SplicePipe>> pipes_;
  std::size_t pipes_out_ = 0;
  std::map<milliseconds, Watches> watches_;  // by time; longest silent first
  std::size_t watching_ = 0;
  std::optional<asio::steady_timer> timer_;
  bool armed_ = false;
};

}  // namespace cofferdam::egressproxy
