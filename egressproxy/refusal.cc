#include "egressproxy/refusal.h"

#include "common/base/json_text.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;

std::string_view phrase_for(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 508:
      return "Loop Detected";
    default:
      return "Forbidden";
  }
}

}  // namespace

std::string hint_for(const policy::Decision& decision, std::string_view host, std::uint16_t port,
                     std::string_view protocol) {
  switch (decision.reason) {
    case Reason::kNoRule:
    case Reason::kPortNotAllowed:
    case Reason::kProtocolNotAllowed:
    case Reason::kIpLiteral:
    case Reason::kPrivateAddress:
      break;
    default:
      return {};
  }
  const bool addressable = !host.empty() && policy::Host::parse(host).ok();
  if (!addressable) return {};
  // As short as the grammar allows: tls is meant without a protocol, and each has its own port.
  const bool http = protocol == "http" || (protocol.empty() && port == 80);
  std::string rule;
  if (http || protocol == "tcp") rule = http ? "http://" : "tcp://";
  rule += host;
  if (port != 0 && port != (http ? 80 : 443)) rule += ":" + std::to_string(port);
  // Which range is the user's to say: an address is never told here.
  if (decision.reason == Reason::kPrivateAddress) rule += "=CIDR";
  return "cofferdam run --allow '" + rule + "'";
}

int status_for(Reason reason) {
  switch (reason) {
    case Reason::kMalformed:
    case Reason::kNameInvalid:
      return 400;
    case Reason::kHostMismatch:
      return 421;
    case Reason::kUnsupported:
      return 501;
    case Reason::kResolveFailed:
    case Reason::kNoAddress:
    case Reason::kConnectFailed:
    case Reason::kPeerMismatch:
    case Reason::kUpstreamProxyFailed:
    case Reason::kUpstreamProxyRefused:
      return 502;
    case Reason::kTooManyConnections:
      return 503;
    case Reason::kResolveTimeout:
    case Reason::kDeadline:
      return 504;
    case Reason::kRateLimited:
      return 429;
    case Reason::kLoop:
      return 508;
    default:
      return 403;
  }
}

std::string_view sentence_for(Reason reason) {
  switch (reason) {
    case Reason::kNoRule:
      return "no rule allows this host";
    case Reason::kDeniedByRule:
      return "a deny rule names this host";
    case Reason::kPortNotAllowed:
      return "the host is allowed, but not this port";
    case Reason::kProtocolNotAllowed:
      return "the host is allowed, but not with this protocol";
    case Reason::kIpLiteral:
      return "an address instead of a name, and no rule lists it";
    case Reason::kPrivateAddress:
      return "the name leads to a private address that the rule does not open";
    case Reason::kLoopbackAddress:
      return "loopback addresses of the host cannot be reached";
    case Reason::kLinkLocalAddress:
      return "link-local addresses cannot be reached";
    case Reason::kMetadataAddress:
      return "metadata services cannot be reached";
    case Reason::kReservedAddress:
      return "reserved addresses cannot be reached";
    case Reason::kHostAddress:
      return "the host itself cannot be reached";
    case Reason::kMixedAnswer:
      return "the name leads to allowed and refused addresses at once";
    case Reason::kNameInvalid:
      return "not a host name in its canonical form";
    case Reason::kResolveFailed:
      return "the name could not be resolved";
    case Reason::kResolveTimeout:
      return "the name servers did not answer in time";
    case Reason::kNoAddress:
      return "the name has no address";
    case Reason::kConnectFailed:
      return "the server could not be connected to";
    case Reason::kUpstreamProxyFailed:
      return "the upstream proxy could not be reached, or failed itself";
    case Reason::kUpstreamProxyRefused:
      return "the upstream proxy refused the connection";
    case Reason::kHostMismatch:
      return "the Host header names another host than the one asked for";
    case Reason::kMalformed:
      return "the request is malformed";
    case Reason::kUnsupported:
      return "not in this version";
    case Reason::kNotTls:
      return "the rule is for TLS, and this is not TLS";
    case Reason::kLoop:
      return "the gate does not connect to itself";
    case Reason::kDeadline:
      return "it took too long";
    case Reason::kTooManyConnections:
      return "too many connections at once";
    case Reason::kQuotaExceeded:
      return "a budget of bytes is spent, or the record of decisions is full";
    case Reason::kRateLimited:
      return "too many in too short a time";
    case Reason::kPolicyRevoked:
      return "the policy no longer allows it";
    default:
      return "refused";
  }
}

std::string write_refusal(const Refusal& refusal, bool keep_alive, bool with_body) {
  const Reason reason = refusal.decision.reason;
  Json body = {{"error", refusal.why.empty() ? std::string(sentence_for(reason)) : refusal.why},
               {"reason", policy::to_text(reason)},
               {"rule", refusal.decision.rule},
               {"host", refusal.host},
               {"port", refusal.port},
               {"hint", hint_for(refusal.decision, refusal.host, refusal.port, refusal.protocol)},
               {"retryable", policy::is_retryable(reason)}};
  const std::string text = canonical_json(body) + "\n";
  // Some clients show nothing but the reason phrase.
  std::string out = "HTTP/1.1 " + std::to_string(refusal.status) + " " +
                    std::string(phrase_for(refusal.status)) + " (" +
                    std::string(policy::to_text(reason)) + ")\r\n";
  out += "Cofferdam-Reason: " + std::string(policy::to_text(reason)) + "\r\n";
  out += "Content-Type: application/json\r\nCache-Control: no-store\r\n";
  out += "Content-Length: " + std::to_string(text.size()) + "\r\n";
  // What a client may sensibly try again, and what it may not, is told apart by status as well.
  if (refusal.status == 429 || refusal.status == 503 || refusal.status == 504) {
    out += "Retry-After: 1\r\n";
  }
  if (!keep_alive) out += "Connection: close\r\n";
  out += "\r\n";
  if (with_body) out += text;
  return out;
}

}  // namespace cofferdam::egressproxy
