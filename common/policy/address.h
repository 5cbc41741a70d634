// IpAddress and Cidr: the one address type for both families. Pure.
//
// Parsing is inet_pton(3) and nothing else: no octal, no hexadecimal, no short forms, no zone.
// An IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) is the IPv4 address from the moment it is made,
// because that is what the kernel would send.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::policy {

class IpAddress final {
 public:
  // Dotted quad or IPv6 text without brackets and without zone; nothing for anything else.
  static std::optional<IpAddress> parse(std::string_view text);
  static IpAddress from_v4(std::array<std::uint8_t, 4> bytes);
  static IpAddress from_v6(const std::array<std::uint8_t, 16>& bytes);

  bool is_v4() const { return v4_; }
  // 4 or 16 bytes in network order.
  std::span<const std::uint8_t> bytes() const { return {bytes_.data(), v4_ ? 4U : 16U}; }
  std::array<std::uint8_t, 4> v4_bytes() const;   // precondition: is_v4()
  std::array<std::uint8_t, 16> v6_bytes() const;  // precondition: !is_v4()
  std::string to_text() const;                    // RFC 5952
  std::string to_host_text() const;               // IPv6 in brackets

  auto operator<=>(const IpAddress&) const = default;

 private:
  IpAddress() = default;
  bool v4_ = true;
  std::array<std::uint8_t, 16> bytes_{};  // IPv4 in the first four, the rest zero
};

class Cidr final {
 public:
  // "10.0.0.0/8", or a single address. Host bits that are set are an error, and so is an
  // IPv4-mapped prefix.
  static Result<Cidr> parse(std::string_view text);

  // The range of `length` bits, at most the address's own, that holds `address`.
  static Cidr around(const IpAddress& address, int length);

  bool contains(const IpAddress& address) const;
  const IpAddress& address() const { return address_; }
  int length() const { return length_; }
  std::string to_text() const;
  bool operator==(const Cidr&) const = default;

 private:
  Cidr(const IpAddress& address, int length) : address_(address), length_(length) {}
  IpAddress address_;
  int length_;
};

}  // namespace cofferdam::policy
