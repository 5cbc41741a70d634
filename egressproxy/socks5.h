// SOCKS5 (RFC 1928): the messages, read strictly and written. Pure. The wire is socks_session.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/policy/host_name.h"
#include "common/policy/reason.h"

namespace cofferdam::egressproxy::socks {

enum class State : std::uint8_t { kNeedMore, kComplete, kRefused };

// RFC 1928 3: the methods that a client offers.
struct Greeting {
  State state = State::kNeedMore;
  std::size_t length = 0;          // of kComplete
  bool no_authentication = false;  // the one method that is spoken here
};
Greeting parse_greeting(std::string_view bytes);
// The method selection: no authentication, or none acceptable.
std::string_view write_method(bool acceptable);

// RFC 1928 6.
enum class Reply : std::uint8_t {
  kSucceeded = 0,
  kFailed = 1,
  kNotAllowed = 2,
  kHostUnreachable = 4,
  kRefused = 5,
  kExpired = 6,
  kCommandNotSupported = 7,
  kAddressTypeNotSupported = 8,
};
// BND.ADDR and BND.PORT are zero: which address was reached is nobody's business.
std::string write_reply(Reply reply);
// The reply that goes with a refusal or a failure.
Reply reply_for(policy::Reason reason);

// RFC 1928 4: CONNECT to a name, or to an address. A domain that spells an address is one, read by
// the same strict rules as everywhere.
struct Request {
  State state = State::kNeedMore;
  std::size_t length = 0;                    // of kComplete
  std::optional<policy::Endpoint> endpoint;  // of kComplete
  Reply reply = Reply::kFailed;              // of kRefused, with
  policy::Reason reason = policy::Reason::kMalformed;
};
Request parse_request(std::string_view bytes);

}  // namespace cofferdam::egressproxy::socks
