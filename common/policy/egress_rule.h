// The grammar of network rules: `[PROTO://]HOST[:PORT][=CIDR,…]`. Pure.
//
// One grammar for the policy file, `--allow` and grants. PROTO is `tls` (default), `http` (default
// when PORT is 80) or `tcp` (PORT required). PORT defaults to 443 for tls and 80 for http. HOST is
// a name, `*.name` (the names below it, not itself, and not over a public suffix) or an address
// literal, IPv6 in brackets; a name may hold U-labels, which become A-labels here, once (idna.h).
// `=CIDR` opens ranges of the policy tier for this host.
//
// An entry of the deny list has the same text without `=`; what it does not say means "any": no
// PROTO any protocol, no PORT any port, and HOST `*` any host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/text_time.h"
#include "common/policy/address.h"
#include "common/policy/budget.h"
#include "common/policy/host_name.h"

namespace cofferdam::policy {

enum class Protocol : std::uint8_t { kTls, kHttp, kTcp };
std::string_view to_text(Protocol protocol);
std::optional<Protocol> protocol_from_text(std::string_view text);

// What a rule says about hosts.
class HostPattern final {
 public:
  enum class Kind : std::uint8_t { kExact, kBelow, kAny };
  static HostPattern exact(Host host) { return {Kind::kExact, std::move(host)}; }
  static HostPattern below(HostName name) { return {Kind::kBelow, Host(std::move(name))}; }
  static HostPattern any() { return {Kind::kAny, std::nullopt}; }

  Kind kind() const { return kind_; }
  const Host& host() const { return *host_; }  // precondition: kind() is not kAny
  // A wildcard never matches an address literal; kAny matches everything.
  bool matches(const Host& host) const;
  std::string text() const;
  bool operator==(const HostPattern&) const = default;

 private:
  HostPattern(Kind kind, std::optional<Host> host) : kind_(kind), host_(std::move(host)) {}
  Kind kind_;
  std::optional<Host> host_;
};

struct EgressRule {
  explicit EgressRule(HostPattern host_pattern) : pattern(std::move(host_pattern)) {}
  std::string id;      // "cli:1"; unique in a policy
  std::string source;  // where it came from, for people: "preset:npm"; may be empty
  HostPattern pattern;
  Protocol protocol = Protocol::kTls;
  std::uint16_t port = 0;       // never 0 after parsing
  std::vector<Cidr> addresses;  // policy-tier ranges that this rule opens
  // Not of the rule's text: keys beside it.
  Budget budget;
  std::optional<WallTime> expires;  // a grant's end
};

struct DenyRule {
  std::string id;
  std::string source;
  HostPattern pattern = HostPattern::any();
  std::optional<Protocol> protocol;   // none: any
  std::optional<std::uint16_t> port;  // none: any
};

// Errors say what to write instead.
Result<EgressRule> parse_rule(std::string_view text);
Result<DenyRule> parse_deny_rule(std::string_view text);

// The canonical spelling, with protocol and port written out: "tls://example.com:443=10.0.0.0/8".
std::string to_text(const EgressRule& rule);

}  // namespace cofferdam::policy
