// Netlink messages by hand (netlink(7)): no static libmnl exists on Debian 12.
//
// A NetlinkBatch is a buffer of messages; NetlinkSocket sends one and waits for every
// acknowledgement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::init {

class NetlinkBatch final {
 public:
  // Begins a message; the header that follows nlmsghdr is appended by append(). NLM_F_REQUEST is
  // added to `flags`.
  void begin(std::uint16_t type, std::uint16_t flags);
  void append(const void* bytes, std::size_t size);  // padded to 4
  template <typename T>
  void append(const T& value) {
    append(&value, sizeof value);
  }
  void attribute(std::uint16_t type, const void* bytes, std::size_t size);
  void attribute_text(std::uint16_t type, std::string_view text);  // zero terminated
  void attribute_be32(std::uint16_t type, std::uint32_t value);
  void attribute_u32(std::uint16_t type, std::uint32_t value);
  // Nested attributes: the value is what open_nest returned.
  std::size_t open_nest(std::uint16_t type);
  void close_nest(std::size_t nest);
  void end();

  const std::string& bytes() const { return buffer_; }
  std::uint32_t last_sequence() const { return sequence_; }
  // Messages that asked for an acknowledgement.
  int wanted_acks() const { return wanted_acks_; }

 private:
  std::string buffer_;
  std::size_t message_start_ = 0;
  std::uint32_t sequence_ = 0;
  int wanted_acks_ = 0;
};

class NetlinkSocket final {
 public:
  static Result<NetlinkSocket> open(int protocol);
  // Sends everything in one piece and reads an acknowledgement for every message that wants one;
  // the first negative one is the error, with its errno.
  Status transact(const NetlinkBatch& batch) const;

 private:
  explicit NetlinkSocket(os::UniqueFd fd) : fd_(std::move(fd)) {}
  os::UniqueFd fd_;
};

}  // namespace cofferdam::init
