#include "egressproxy/recognise.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

constexpr std::size_t kMaxLine = 8192;

bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

}  // namespace

Opening recognise(std::string_view bytes) {
  if (bytes.empty()) return Opening::kNeedMore;
  switch (bytes.front()) {
    case 0x16:
      return Opening::kTls;
    case 0x05:
      return Opening::kSocks5;
    case 0x04:
      return Opening::kSocks4;
    default:
      break;
  }
  if (!is_letter(bytes.front())) return Opening::kOther;
  const auto end = bytes.find('\n');
  if (end == std::string_view::npos) {
    const bool printable =
        std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= 0x20 || c == '\r'; });
    // A request line that is too long is told so by the HTTP parser.
    if (bytes.size() > kMaxLine) return printable ? Opening::kHttp : Opening::kOther;
    return printable ? Opening::kNeedMore : Opening::kOther;
  }
  return bytes.substr(0, end).find(" HTTP/") != std::string_view::npos ? Opening::kHttp
                                                                       : Opening::kOther;
}

}  // namespace cofferdam::egressproxy
