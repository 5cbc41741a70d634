// An edge-triggered epoll(7) instance: each change of a descriptor's state is told once.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

class Epoll final {
 public:
  // What has become true of the descriptor that was added with `tag`.
  struct Event {
    void* tag = nullptr;
    bool readable = false;
    bool writable = false;
    // For good: the peer has ended its side, or the connection is broken. The next call tells.
    bool read_ended = false;
    bool write_ended = false;
    bool urgent = false;  // a read stops before urgent bytes, whatever comes after them (tcp(7))
  };

  static Result<Epoll> create();

  // Whether it can be written is told too with `writes`, now and after each write that had to wait.
  // What is true already is told at once. Closing the descriptor ends it. An errno, or 0.
  int add(int fd, void* tag, bool writes) const;
  int modify(int fd, void* tag, bool writes) const;

  // What has happened since it was asked last, without waiting; more may be there when it fills
  // `into`. The events that it gives.
  std::span<Event> take(std::span<Event> into) const;

  // Readable (level-triggered) while there is something to take.
  int fd() const { return fd_.get(); }

 private:
  explicit Epoll(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace cofferdam::os
