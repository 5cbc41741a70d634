// Heads and chunks: what is accepted and written anew is accepted again and means the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "egressproxy/http_body.h"
#include "egressproxy/http_head.h"

namespace http = cofferdam::egressproxy::http;

namespace {

void check_request(std::string_view head) {
  const http::RequestResult first = http::parse_request(head);
  if (!first.head) return;
  (void)http::parse_absolute_target(first.head->target);
  const std::string written = http::write_request(*first.head, "a.example", "/");
  const http::RequestResult second = http::parse_request(written);
  if (!second.head || second.head->framing.kind != first.head->framing.kind ||
      second.head->framing.length != first.head->framing.length) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const http::HeadScan scan = http::scan_head(bytes);
  if (scan.state == http::HeadScan::State::kComplete) {
    const std::string_view head = bytes.substr(scan.skip, scan.length);
    check_request(head);
    (void)http::parse_response(head).ok();
  }
  http::ChunkReader reader;
  std::string content;
  std::size_t used = 0;
  (void)reader.read(bytes, content, used);
  if (used > size || content.size() > size) __builtin_trap();
  return 0;
}
