#include "common/policy/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "common/base/check.h"

namespace cofferdam::policy {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// Whether the first `length` bits of both are equal.
bool same_prefix(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b, int length) {
  const auto whole = static_cast<std::size_t>(length / 8);
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(whole), b.begin()))
    return false;
  const int rest = length % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff << (8 - rest));
  return (a[whole] & mask) == (b[whole] & mask);
}

}  // namespace

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (text.empty() || text.size() > 45 || text.find('\0') != std::string_view::npos) {
    return std::nullopt;
  }
  const std::string copy(text);
  std::array<std::uint8_t, 4> four{};
  if (::inet_pton(AF_INET, copy.c_str(), four.data()) == 1) {
    const IpAddress address = from_v4(four);
    // One spelling only, whatever the C library takes.
    if (address.to_text() != text) return std::nullopt;
    return address;
  }
  std::array<std::uint8_t, 16> sixteen{};
  if (::inet_pton(AF_INET6, copy.c_str(), sixteen.data()) == 1) return from_v6(sixteen);
  return std::nullopt;
}

IpAddress IpAddress::from_v4(std::array<std::uint8_t, 4> bytes) {
  IpAddress address;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  return address;
}

IpAddress IpAddress::from_v6(const std::array<std::uint8_t, 16>& bytes) {
  if (std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin())) {
    return from_v4({bytes[12], bytes[13], bytes[14], bytes[15]});
  }
  IpAddress address;
  address.v4_ = false;
  address.bytes_ = bytes;
  return address;
}

std::array<std::uint8_t, 4> IpAddress::v4_bytes() const {
  CHECK(v4_);
  return {bytes_[0], bytes_[1], bytes_[2], bytes_[3]};
}

std::array<std::uint8_t, 16> IpAddress::v6_bytes() const {
  CHECK(!v4_);
  return bytes_;
}

std::string IpAddress::to_text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  CHECK(::inet_ntop(v4_ ? AF_INET : AF_INET6, bytes_.data(), text.data(), text.size()) != nullptr);
  return text.data();
}

std::string IpAddress::to_host_text() const {
  return v4_ ? to_text() : "[" + to_text() + "]";
}

Result<Cidr> Cidr::parse(std::string_view text) {
  const auto slash = text.find('/');
  const std::string_view address_text = text.substr(0, slash);
  const auto address = IpAddress::parse(address_text);
  if (!address) return Error("not an address range: '" + std::string(text) + "'");
  const int bits = address->is_v4() ? 32 : 128;
  if (slash == std::string_view::npos) return Cidr(*address, bits);
  if (address->is_v4() && address_text.find(':') != std::string_view::npos) {
    return Error("an IPv4-mapped range; write the IPv4 range: '" + std::string(text) + "'");
  }
  const std::string_view digits = text.substr(slash + 1);
  int length = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size() || length < 0 ||
      length > bits || (digits.size() > 1 && digits.front() == '0')) {
    return Error("not a prefix length: '" + std::string(text) + "'");
  }
  const Cidr cidr(*address, length);
  const auto bytes = address->bytes();
  for (int bit = length; bit < bits; ++bit) {
    if ((bytes[static_cast<std::size_t>(bit / 8)] >> (7 - bit % 8) & 1U) != 0) {
      return Error("bits are set below the prefix: '" + std::string(text) + "'");
    }
  }
  return cidr;
}

Cidr Cidr::around(const IpAddress& address, int length) {
  CHECK(length >= 0 && length <= (address.is_v4() ? 32 : 128));
  return {address, length};
}

bool Cidr::contains(const IpAddress& address) const {
  return address.is_v4() == address_.is_v4() &&
         same_prefix(address.bytes(), address_.bytes(), length_);
}

std::string Cidr::to_text() const {
  return address_.to_text() + "/" + std::to_string(length_);
}

}  // namespace cofferdam::policy
