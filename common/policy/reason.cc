#include "common/policy/reason.h"

#include <array>
#include <cstddef>

namespace cofferdam::policy {
namespace {

constexpr std::array<std::string_view, 44> kTexts = {"allowed",
                                                     "no_rule",
                                                     "denied_by_rule",
                                                     "port_not_allowed",
                                                     "protocol_not_allowed",
                                                     "method_not_allowed",
                                                     "path_not_allowed",
                                                     "ip_literal",
                                                     "private_address",
                                                     "loopback_address",
                                                     "link_local_address",
                                                     "metadata_address",
                                                     "reserved_address",
                                                     "host_address",
                                                     "mixed_answer",
                                                     "name_invalid",
                                                     "resolve_failed",
                                                     "resolve_timeout",
                                                     "no_address",
                                                     "connect_failed",
                                                     "peer_mismatch",
                                                     "sni_missing",
                                                     "sni_mismatch",
                                                     "not_tls",
                                                     "host_mismatch",
                                                     "malformed",
                                                     "unsupported",
                                                     "loop",
                                                     "quota_exceeded",
                                                     "rate_limited",
                                                     "too_many_connections",
                                                     "deadline",
                                                     "policy_revoked",
                                                     "hidden",
                                                     "readonly",
                                                     "outside",
                                                     "special_file",
                                                     "changed_under",
                                                     "syscall",
                                                     "upstream_proxy_failed",
                                                     "upstream_proxy_refused",
                                                     "tool_not_declared",
                                                     "tool_denied",
                                                     "approval_required"};
static_assert(kTexts.size() == static_cast<std::size_t>(Reason::kApprovalRequired) + 1);

}  // namespace

std::string_view to_text(Reason reason) {
  return kTexts[static_cast<std::size_t>(reason)];
}

std::optional<Reason> reason_from_text(std::string_view text) {
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    if (kTexts[i] == text) return static_cast<Reason>(i);
  }
  return std::nullopt;
}

bool is_retryable(Reason reason) {
  switch (reason) {
    case Reason::kResolveFailed:
    case Reason::kResolveTimeout:
    case Reason::kConnectFailed:
    case Reason::kRateLimited:
    case Reason::kTooManyConnections:
    case Reason::kDeadline:
    case Reason::kUpstreamProxyFailed:
      return true;
    default:
      return false;
  }
}

std::string_view to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAllow:
      return "allow";
    case Verdict::kError:
      return "error";
    case Verdict::kDeny:
      break;
  }
  return "deny";
}

}  // namespace cofferdam::policy
