// HostName, Host and Endpoint: the spelling of hosts, judged once. Pure.
//
// A HostName is always in its canonical form: lower-case ASCII letters, digits, '-' and '_', no
// empty label, labels of 1..63 bytes, 1..253 in all, no trailing dot, and its last label is not a
// number (the rule "ends in a number" of the WHATWG URL standard: such text is an IPv4 literal to
// somebody's parser). Nothing else can make one.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/policy/address.h"

namespace cofferdam::policy {

class HostName final {
 public:
  // Upper case is folded, one trailing dot is removed; everything else must be canonical already.
  static Result<HostName> parse(std::string_view text);

  const std::string& text() const { return text_; }
  // From the left: "a.example.com" gives a, example, com. Views into text().
  std::vector<std::string_view> labels() const;
  std::size_t label_count() const;
  // Below `parent` by whole labels, and not `parent` itself.
  bool is_below(const HostName& parent) const;

  auto operator<=>(const HostName&) const = default;

 private:
  explicit HostName(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

// What an authority names: a name, or an address literal.
class Host final {
 public:
  Host(HostName name) : value_(std::move(name)) {}     // NOLINT(google-explicit-constructor)
  Host(const IpAddress& address) : value_(address) {}  // NOLINT(google-explicit-constructor)

  // uri-host of RFC 3986 in its strict reading: a name, a canonical dotted quad, or IPv6 in
  // brackets. No percent encoding, no zone, no user information.
  static Result<Host> parse(std::string_view text);

  bool is_name() const { return std::holds_alternative<HostName>(value_); }
  const HostName& name() const { return std::get<HostName>(value_); }  // precondition: is_name()
  const IpAddress& address() const {
    return std::get<IpAddress>(value_);
  }  // precondition: !is_name()
  // The canonical spelling in an authority: IPv6 in brackets.
  std::string text() const { return is_name() ? name().text() : address().to_host_text(); }

  auto operator<=>(const Host&) const = default;

 private:
  std::variant<HostName, IpAddress> value_;
};

// 1..65535 in decimal without sign, spaces or leading zeros.
Result<std::uint16_t> parse_port(std::string_view text);

struct Endpoint {
  Host host;
  std::uint16_t port;  // never 0
  std::string text() const { return host.text() + ":" + std::to_string(port); }
  auto operator<=>(const Endpoint&) const = default;
};

// "host:port"; without a port only when `default_port` is not 0. An empty port ("host:") is an
// error.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port = 0);

}  // namespace cofferdam::policy
