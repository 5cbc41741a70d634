// The first bytes of a tunnel or a redirected connection: waiting for them, and what they may
// narrow.
#pragma once

#include <optional>
#include <vector>

#include "common/policy/egress_policy.h"
#include "egressproxy/deadlines.h"
#include "egressproxy/recognise.h"
#include "egressproxy/stream.h"
#include "egressproxy/tls_client_hello.h"

namespace cofferdam::egressproxy {

struct FirstBytes {
  Opening opening = Opening::kNeedMore;  // kNeedMore: nothing came in time, or the end did
  ClientHello hello;                     // of kTls; complete, or malformed
};

// Waits until the conversation is recognised; nothing is consumed. `silent_time` is for the first
// byte, Deadlines::hello for the rest.
Async<FirstBytes> read_first_bytes(Stream& stream, const Deadlines& deadlines,
                                   milliseconds silent_time);
Async<FirstBytes> read_first_bytes(Stream& stream, const Deadlines& deadlines);

// What one byte tells. kNeedMore: none came in time. What is no SOCKS is kOther here.
Async<Opening> read_first_byte(Stream& stream, milliseconds time);

// What a ClientHello makes of the hosts that a connection may be for. Pure.
struct Narrowed {
  policy::Decision decision;  // allows: `endpoint` is what will be reached
  std::optional<policy::Endpoint> endpoint;
};
// `hosts` is what was decided or pinned before: names, or a literal that a rule lists. The SNI must
// be one of the names, in canonical form; a literal is reached without SNI (RFC 6066 forbids one).
// Where any name is taken, the one that is said is decided instead.
Narrowed narrow_by_hello(const policy::EgressPolicy& policy, const std::vector<policy::Host>& hosts,
                         std::uint16_t port, const ClientHello& hello);

// Whether one of the hosts is an address that a mode lets through and no rule lists: whatever name
// is said there may be decided and dialled for itself.
bool takes_any_name(const policy::EgressPolicy& policy, const std::vector<policy::Host>& hosts);

// The refusal of first bytes that are neither TLS nor HTTP where a rule asks for one of them.
policy::Decision refuse_unrecognised(const policy::EndpointDecision& endpoint);

}  // namespace cofferdam::egressproxy
