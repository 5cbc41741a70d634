// Heads and chunks: what is accepted and written anew is accepted again and means the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "egressproxy/http_body.h"
#include "egressproxy/http_head.h"

namespace http = cofferdam::egressproxy::http;

namespace {

constexpr std::string_view kVia = "cofferdam-0123456789abcdef";

void check_request(std::string_view head) {
  const http::RequestResult first = http::parse_request(head);
  if (!first.head) return;
  (void)http::parse_absolute_target(first.head->target);
  const std::string written = http::write_request(*first.head, "a.example", "/", kVia);
  const http::RequestResult second = http::parse_request(written);
  // One more field than a hundred is one too many.
  if (!second.head && first.head->fields.size() + 3 > http::kMaxFields) return;
  if (!second.head || second.head->framing.kind != first.head->framing.kind ||
      second.head->framing.length != first.head->framing.length ||
      second.head->websocket != first.head->websocket || second.head->target != "/" ||
      second.head->host != "a.example" || !http::came_through(second.head->fields, kVia)) {
    __builtin_trap();
  }
  for (const http::Field& field : second.head->fields) {
    if (http::equal_folded(field.name, "Proxy-Authorization")) __builtin_trap();
  }
}

void check_response(std::string_view head) {
  const auto first = http::parse_response(head);
  if (!first) return;
  const http::Framing framing = http::response_framing(*first, "GET");
  const std::string written = http::write_response(*first, framing, false, 1, kVia);
  const auto second = http::parse_response(written);
  if (!second && first->fields.size() + 3 > http::kMaxFields) return;
  if (!second || second->status != first->status || second->keep_alive == (first->status >= 200) ||
      http::response_framing(*second, "GET").kind != framing.kind) {
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
    check_response(head);
  }
  http::ChunkReader reader;
  std::string content;
  std::size_t used = 0;
  (void)reader.read(bytes, content, used);
  if (used > size || content.size() > size) __builtin_trap();
  return 0;
}
