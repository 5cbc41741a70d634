// What kind of conversation begins with these bytes. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace cofferdam::egressproxy {

enum class Opening : std::uint8_t {
  kNeedMore,
  kTls,     // a TLS record of type handshake
  kHttp,    // a line that ends like a request line
  kSocks5,  // only meaningful on the explicit port
  kSocks4,
  kOther,
};

// `bytes` is everything that has come so far. kHttp needs the whole first line.
Opening recognise(std::string_view bytes);

}  // namespace cofferdam::egressproxy
