// SOCKS5 messages: what is complete is complete with more bytes behind it and incomplete with one
// less, and what it names is canonical.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "egressproxy/recognise.h"
#include "egressproxy/socks5.h"

namespace socks = cofferdam::egressproxy::socks;

namespace {

void check_request(std::string_view bytes) {
  const socks::Request request = socks::parse_request(bytes);
  if ((request.state == socks::State::kComplete) != request.endpoint.has_value()) __builtin_trap();
  if (!request.endpoint) return;
  if (request.length > bytes.size() || request.endpoint->port == 0) __builtin_trap();
  const socks::Request shorter = socks::parse_request(bytes.substr(0, request.length - 1));
  if (shorter.state != socks::State::kNeedMore) __builtin_trap();
  const socks::Request exact = socks::parse_request(bytes.substr(0, request.length));
  if (exact.endpoint != request.endpoint) __builtin_trap();
  const auto again = cofferdam::policy::parse_endpoint(request.endpoint->text());
  if (!again || *again != *request.endpoint) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)cofferdam::egressproxy::recognise(bytes);
  const socks::Greeting greeting = socks::parse_greeting(bytes);
  if (greeting.state == socks::State::kComplete) {
    if (greeting.length > size) __builtin_trap();
    check_request(bytes.substr(greeting.length));
  }
  check_request(bytes);
  return 0;
}
