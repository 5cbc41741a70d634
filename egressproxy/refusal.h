// How a refusal is told to the workload: status, header, body, and the command that would allow it.
// Pure. Never an address, or the gate would be an oracle for the names of an internal network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/policy/egress_policy.h"

namespace cofferdam::egressproxy {

// `protocol`: "tls", "http", "tcp" or "" (tls, or http on port 80). Empty where no rule would help.
std::string hint_for(const policy::Decision& decision, std::string_view host, std::uint16_t port,
                     std::string_view protocol);

// The HTTP status that goes with a reason.
int status_for(policy::Reason reason);

struct Refusal {
  int status = 403;
  policy::Decision decision;
  std::string host;  // as the workload named it, canonical; may be empty
  std::uint16_t port = 0;
  std::string protocol;
  std::string why;  // a sentence; the reason's own when empty
};

// A whole response: Content-Length set, never 407, `Cofferdam-Reason` set.
std::string write_refusal(const Refusal& refusal, bool keep_alive, bool with_body = true);

// A sentence about a reason, for people.
std::string_view sentence_for(policy::Reason reason);

}  // namespace cofferdam::egressproxy
