// Reasons: one enumeration for events, replies, DNS, the CLI. Extend, never reword.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cofferdam::policy {

enum class Reason : std::uint8_t {
  kAllowed,
  kNoRule,
  kDeniedByRule,
  kPortNotAllowed,
  kProtocolNotAllowed,
  kMethodNotAllowed,
  kPathNotAllowed,
  kIpLiteral,
  kPrivateAddress,
  kLoopbackAddress,
  kLinkLocalAddress,
  kMetadataAddress,
  kReservedAddress,
  kHostAddress,
  kMixedAnswer,
  kNameInvalid,
  kResolveFailed,
  kResolveTimeout,
  kNoAddress,
  kConnectFailed,
  kPeerMismatch,
  kSniMissing,
  kSniMismatch,
  kNotTls,
  kHostMismatch,
  kMalformed,
  kUnsupported,
  kLoop,
  kQuotaExceeded,
  kRateLimited,
  kTooManyConnections,
  kDeadline,
  kPolicyRevoked,
  kHidden,
  kReadonly,
  kOutside,
  kSpecialFile,
  kChangedUnder,
  kSyscall,
  kUpstreamProxyFailed,   // no tunnel: the upstream proxy cannot be reached, or has trouble itself
  kUpstreamProxyRefused,  // the upstream proxy answered that it will not
  kToolNotDeclared,       // the manifest names no such tool
  kToolDenied,            // it does, and never lets it be called
  kApprovalRequired,      // somebody has to say yes, and nobody was asked
};

// The text of a reason in every output: "no_rule".
std::string_view to_text(Reason reason);
std::optional<Reason> reason_from_text(std::string_view text);

// Whether a client may sensibly try again without a change of policy.
bool is_retryable(Reason reason);

enum class Verdict : std::uint8_t { kDeny, kAllow, kError };
std::string_view to_text(Verdict verdict);

}  // namespace cofferdam::policy
