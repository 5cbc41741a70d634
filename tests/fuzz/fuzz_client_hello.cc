// A ClientHello in any state: no crash, and what is complete stays complete with more bytes behind
// it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/policy/host_name.h"
#include "egressproxy/recognise.h"
#include "egressproxy/tls_client_hello.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using cofferdam::egressproxy::ClientHello;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)cofferdam::egressproxy::recognise(bytes);
  const ClientHello hello = cofferdam::egressproxy::parse_client_hello(bytes);
  if (hello.state != ClientHello::State::kComplete && hello.server_name) __builtin_trap();
  // What is judged stays judged, whatever comes behind it: a verdict waits for nothing.
  if (hello.state != ClientHello::State::kNeedMore && size > 0) {
    const std::string longer = std::string(bytes) + "behind";
    const ClientHello again = cofferdam::egressproxy::parse_client_hello(longer);
    if (again.state != hello.state || again.server_name != hello.server_name) __builtin_trap();
  }
  if (hello.server_name) (void)cofferdam::policy::HostName::parse(*hello.server_name).ok();
  return 0;
}
