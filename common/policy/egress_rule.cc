#include "common/policy/egress_rule.h"

#include "common/policy/address_class.h"
#include "common/policy/idna.h"
#include "common/policy/public_suffix.h"

namespace cofferdam::policy {
namespace {

// The parts of a rule's text, before any of them is judged.
struct Parts {
  std::optional<std::string_view> protocol;
  std::string_view host;
  std::optional<std::string_view> port;
  std::optional<std::string_view> addresses;
};

Error bad_rule(std::string_view text, std::string_view why) {
  return Error("rule '" + std::string(text) + "': " + std::string(why));
}

Parts split(std::string_view text) {
  Parts parts;
  const auto scheme = text.find("://");
  if (scheme != std::string_view::npos) {
    parts.protocol = text.substr(0, scheme);
    text.remove_prefix(scheme + 3);
  }
  const auto equals = text.find('=');
  if (equals != std::string_view::npos) {
    parts.addresses = text.substr(equals + 1);
    text = text.substr(0, equals);
  }
  const auto bracket = text.rfind(']');
  const auto colon = text.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    parts.port = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  parts.host = text;
  return parts;
}

Result<Protocol> parse_protocol(std::string_view text) {
  const auto protocol = protocol_from_text(text);
  if (protocol) return *protocol;
  if (text == "https") return Error("write tls:// for what a browser calls https");
  if (text == "ssh") return Error("write tcp://HOST:22 for ssh");
  if (text == "udp") return Error("udp is not in this version");
  return Error("the protocol is tls, http or tcp");
}

Result<HostPattern> parse_pattern(std::string_view written) {
  TRY_ASSIGN(const std::string text, to_a_labels(written));
  if (text.starts_with("*.")) {
    TRY_ASSIGN(HostName name, HostName::parse(std::string_view(text).substr(2)));
    return HostPattern::below(std::move(name));
  }
  if (text.find('*') != std::string::npos) {
    return Error("a wildcard is the whole first label: *.example.com");
  }
  TRY_ASSIGN(Host host, Host::parse(text));
  return HostPattern::exact(std::move(host));
}

Result<std::vector<Cidr>> parse_addresses(std::string_view text) {
  std::vector<Cidr> addresses;
  while (true) {
    const auto comma = text.find(',');
    TRY_ASSIGN(const Cidr cidr, Cidr::parse(text.substr(0, comma)));
    // A range that lies in the floor opens nothing: say so instead of ignoring it.
    const AddressClass first = classify(cidr.address());
    if (first.tier == Tier::kFloor && cidr.length() == (cidr.address().is_v4() ? 32 : 128)) {
      return Error("no rule can open " + cidr.to_text() + " (" + std::string(first.what) + ")");
    }
    addresses.push_back(cidr);
    if (comma == std::string_view::npos) return addresses;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string_view to_text(Protocol protocol) {
  switch (protocol) {
    case Protocol::kHttp:
      return "http";
    case Protocol::kTcp:
      return "tcp";
    case Protocol::kTls:
      break;
  }
  return "tls";
}

std::optional<Protocol> protocol_from_text(std::string_view text) {
  for (const Protocol protocol : {Protocol::kTls, Protocol::kHttp, Protocol::kTcp}) {
    if (text == to_text(protocol)) return protocol;
  }
  return std::nullopt;
}

bool HostPattern::matches(const Host& host) const {
  switch (kind_) {
    case Kind::kAny:
      return true;
    case Kind::kBelow:
      return host.is_name() && host.name().is_below(host_->name());
    case Kind::kExact:
      break;
  }
  return host == *host_;
}

std::string HostPattern::text() const {
  switch (kind_) {
    case Kind::kAny:
      return "*";
    case Kind::kBelow:
      return "*." + host_->text();
    case Kind::kExact:
      break;
  }
  return host_->text();
}

Result<EgressRule> parse_rule(std::string_view text) {
  const Parts parts = split(text);
  if (parts.host == "*") {
    return bad_rule(text, "'*' allows everything; the mode 'open' is the only way to say that");
  }
  auto pattern = parse_pattern(parts.host);
  if (!pattern) return bad_rule(text, pattern.error().message());
  if (pattern->kind() == HostPattern::Kind::kBelow && is_public_suffix(pattern->host().name())) {
    return bad_rule(
        text, "anybody can register a name below '" + pattern->host().text() + "'; name the host");
  }
  EgressRule rule(std::move(*pattern));
  if (parts.port) {
    const auto port = parse_port(*parts.port);
    if (!port) return bad_rule(text, port.error().message());
    rule.port = *port;
  }
  rule.protocol = rule.port == 80 ? Protocol::kHttp : Protocol::kTls;
  if (parts.protocol) {
    const auto protocol = parse_protocol(*parts.protocol);
    if (!protocol) return bad_rule(text, protocol.error().message());
    rule.protocol = *protocol;
  }
  if (!parts.port) {
    if (rule.protocol == Protocol::kTcp) return bad_rule(text, "tcp needs a port: tcp://HOST:PORT");
    rule.port = rule.protocol == Protocol::kHttp ? 80 : 443;
  }
  if (parts.addresses) {
    auto addresses = parse_addresses(*parts.addresses);
    if (!addresses) return bad_rule(text, addresses.error().message());
    rule.addresses = std::move(*addresses);
  }
  return rule;
}

Result<DenyRule> parse_deny_rule(std::string_view text) {
  const Parts parts = split(text);
  if (parts.addresses) return bad_rule(text, "a deny entry has no '='");
  DenyRule rule;
  if (parts.host != "*") {
    auto pattern = parse_pattern(parts.host);
    if (!pattern) return bad_rule(text, pattern.error().message());
    rule.pattern = std::move(*pattern);
  }
  if (parts.port) {
    const auto port = parse_port(*parts.port);
    if (!port) return bad_rule(text, port.error().message());
    rule.port = *port;
  }
  if (parts.protocol) {
    const auto protocol = parse_protocol(*parts.protocol);
    if (!protocol) return bad_rule(text, protocol.error().message());
    rule.protocol = *protocol;
  }
  return rule;
}

std::string to_text(const EgressRule& rule) {
  std::string text = std::string(to_text(rule.protocol)) + "://" + rule.pattern.text() + ":" +
                     std::to_string(rule.port);
  char separator = '=';
  for (const Cidr& cidr : rule.addresses) {
    text += separator + cidr.to_text();
    separator = ',';
  }
  return text;
}

}  // namespace cofferdam::policy
