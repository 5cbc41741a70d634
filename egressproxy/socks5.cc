#include "egressproxy/socks5.h"

#include <algorithm>
#include <array>

#include "egressproxy/dns_wire.h"

namespace cofferdam::egressproxy::socks {
namespace {

using dns::WireReader;  // a bounded big-endian reader
using policy::Reason;

constexpr std::uint8_t kVersion = 5;
constexpr std::uint8_t kConnect = 1;
constexpr std::uint8_t kAddressV4 = 1;
constexpr std::uint8_t kDomain = 3;
constexpr std::uint8_t kAddressV6 = 4;

Request refuse(Reply reply, Reason reason) {
  Request request;
  request.state = State::kRefused;
  request.reply = reply;
  request.reason = reason;
  return request;
}

template <std::size_t size>
std::array<std::uint8_t, size> octets(std::string_view bytes) {
  std::array<std::uint8_t, size> out{};
  std::transform(bytes.begin(), bytes.end(), out.begin(),
                 [](char c) { return static_cast<std::uint8_t>(c); });
  return out;
}

// Nothing: not a host in its canonical form.
std::optional<policy::Host> read_domain(std::string_view text) {
  if (const auto address = policy::IpAddress::parse(text)) return policy::Host(*address);
  auto host = policy::Host::parse(text);
  if (!host) return std::nullopt;
  return std::move(*host);
}

}  // namespace

Greeting parse_greeting(std::string_view bytes) {
  Greeting greeting;
  if (bytes.empty()) return greeting;
  if (static_cast<std::uint8_t>(bytes[0]) != kVersion) {
    greeting.state = State::kRefused;
    return greeting;
  }
  if (bytes.size() < 2) return greeting;
  const std::size_t count = static_cast<std::uint8_t>(bytes[1]);
  if (bytes.size() < 2 + count) return greeting;
  greeting.state = State::kComplete;
  greeting.length = 2 + count;
  greeting.no_authentication = bytes.substr(2, count).find('\0') != std::string_view::npos;
  return greeting;
}

std::string_view write_method(bool acceptable) {
  return acceptable ? std::string_view("\x05\x00", 2) : std::string_view("\x05\xff", 2);
}

std::string write_reply(Reply reply) {
  std::string out("\x05\0\0\x01\0\0\0\0\0\0", 10);
  out[1] = static_cast<char>(reply);
  return out;
}

Reply reply_for(Reason reason) {
  switch (reason) {
    case Reason::kAllowed:
      return Reply::kSucceeded;
    case Reason::kMalformed:
    case Reason::kNameInvalid:
    case Reason::kRateLimited:
    case Reason::kTooManyConnections:
    case Reason::kPeerMismatch:
      return Reply::kFailed;
    case Reason::kResolveFailed:
    case Reason::kNoAddress:
      return Reply::kHostUnreachable;
    case Reason::kConnectFailed:
      return Reply::kRefused;
    case Reason::kResolveTimeout:
    case Reason::kDeadline:
      return Reply::kExpired;
    case Reason::kUnsupported:
      return Reply::kCommandNotSupported;
    default:
      return Reply::kNotAllowed;
  }
}

Request parse_request(std::string_view bytes) {
  Request request;
  WireReader reader(bytes);
  if (reader.left() < 1) return request;
  if (reader.u8() != kVersion) return refuse(Reply::kFailed, Reason::kMalformed);
  if (reader.left() < 1) return request;
  // BIND, UDP ASSOCIATE, and what others have added.
  if (reader.u8() != kConnect) return refuse(Reply::kCommandNotSupported, Reason::kUnsupported);
  if (reader.left() < 1) return request;
  if (reader.u8() != 0) return refuse(Reply::kFailed, Reason::kMalformed);
  if (reader.left() < 1) return request;
  const std::uint8_t kind = reader.u8();
  if (kind != kAddressV4 && kind != kDomain && kind != kAddressV6) {
    return refuse(Reply::kAddressTypeNotSupported, Reason::kUnsupported);
  }
  std::size_t size = kind == kAddressV4 ? 4 : 16;
  if (kind == kDomain) {
    if (reader.left() < 1) return request;
    size = reader.u8();
    if (size == 0) return refuse(Reply::kFailed, Reason::kNameInvalid);
  }
  if (reader.left() < size + 2) return request;
  const std::string_view text = reader.bytes(size);
  const std::uint16_t port = reader.u16();
  std::optional<policy::Host> host;
  if (kind == kAddressV4) host = policy::Host(policy::IpAddress::from_v4(octets<4>(text)));
  if (kind == kAddressV6) host = policy::Host(policy::IpAddress::from_v6(octets<16>(text)));
  if (kind == kDomain) host = read_domain(text);
  if (!host) return refuse(Reply::kFailed, Reason::kNameInvalid);
  if (port == 0) return refuse(Reply::kFailed, Reason::kMalformed);
  request.state = State::kComplete;
  request.length = reader.position();
  request.endpoint = policy::Endpoint{std::move(*host), port};
  return request;
}

}  // namespace cofferdam::egressproxy::socks
