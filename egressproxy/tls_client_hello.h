// The server name in a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cofferdam::egressproxy {

struct ClientHello {
  enum class State : std::uint8_t {
    kNeedMore,   // so far it may become one
    kNotTls,     // no TLS record of a ClientHello
    kMalformed,  // a ClientHello that breaks the format, or longer than kMaxClientHello
    kComplete,
  };
  State state = State::kNeedMore;
  std::optional<std::string> server_name;  // as sent
  bool encrypted_hello = false;  // extension encrypted_client_hello, real or greased (RFC 9849)
};

inline constexpr std::size_t kMaxClientHello = 16384;  // of the handshake message

// `bytes` is everything that the client has sent. The message may lie in several records.
ClientHello parse_client_hello(std::string_view bytes);

}  // namespace cofferdam::egressproxy
