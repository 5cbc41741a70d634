#include "egressproxy/http_head.h"

#include <algorithm>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "egressproxy/http_syntax.h"

namespace cofferdam::egressproxy::http {
namespace {

namespace beast = boost::beast::http;

RequestResult refuse(int status, std::string why) {
  return {std::nullopt, {status, std::move(why)}};
}

HeadScan refuse_scan(int status, const char* why) {
  HeadScan scan;
  scan.state = HeadScan::State::kRefused;
  scan.error = {status, why};
  return scan;
}

// How Beast reads a head: the number of fields, or nothing when it refuses.
template <bool is_request>
std::optional<std::size_t> beast_field_count(std::string_view head) {
  beast::parser<is_request, beast::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(kMaxResponseHead * 2));
  parser.body_limit(boost::none);
  parser.eager(false);
  parser.skip(true);
  boost::system::error_code error;
  std::size_t used = 0;
  while (used < head.size() && !parser.is_header_done()) {
    const std::size_t count =
        parser.put(boost::asio::buffer(head.data() + used, head.size() - used), error);
    if (error || count == 0) break;
    used += count;
  }
  if (error || !parser.is_header_done() || used != head.size()) return std::nullopt;
  const auto& fields = parser.get();
  return static_cast<std::size_t>(std::distance(fields.begin(), fields.end()));
}

bool has_token(const std::vector<std::string>& tokens, std::string_view token) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [token](const std::string& one) { return equal_folded(one, token); });
}

bool upgrades_to_websocket(const std::vector<Field>& fields,
                           const std::vector<std::string>& connection) {
  const auto upgrades = values_of(fields, "Upgrade");
  return upgrades.size() == 1 && equal_folded(upgrades.front(), "websocket") &&
         has_token(connection, "upgrade");
}

bool keeps_alive(const std::vector<Field>& fields, int minor) {
  const auto tokens = connection_tokens(fields);
  if (has_token(tokens, "close")) return false;
  return minor == 1 || has_token(tokens, "keep-alive");
}

// "HTTP/1.x": x, or nothing.
std::optional<int> minor_version(std::string_view text) {
  if (text == "HTTP/1.1") return 1;
  if (text == "HTTP/1.0") return 0;
  return std::nullopt;
}

// What Connection may not take away from a message.
bool names_end_to_end_field(const std::vector<std::string>& tokens) {
  for (const char* name :
       {"host", "content-length", "transfer-encoding", "authorization", "content-type",
        "content-encoding", "content-range", "range", "cookie", "origin", "expect", "via"}) {
    if (has_token(tokens, name)) return true;
  }
  return false;
}

std::optional<HeadError> read_special_fields(RequestHead& head) {
  const auto hosts = values_of(head.fields, "Host");
  if (hosts.size() > 1) return HeadError{400, "more than one Host"};
  if (hosts.empty() && head.minor == 1) return HeadError{400, "no Host"};
  if (!hosts.empty()) {
    if (hosts.front().empty()) return HeadError{400, "an empty Host"};
    head.host = std::string(hosts.front());
  }
  const auto expectations = values_of(head.fields, "Expect");
  if (expectations.size() > 1) return HeadError{417, "more than one Expect"};
  if (!expectations.empty() && head.minor == 1) {
    if (!equal_folded(expectations.front(), "100-continue")) {
      return HeadError{417, "an expectation other than 100-continue"};
    }
    head.expects_continue = true;
  }
  const auto tokens = connection_tokens(head.fields);
  if (names_end_to_end_field(tokens)) {
    return HeadError{400, "Connection names a field that is not between neighbours only"};
  }
  head.websocket = head.minor == 1 && head.framing.kind == BodyKind::kNone &&
                   upgrades_to_websocket(head.fields, tokens);
  return std::nullopt;
}

// The start line and the rest of a head that ends with its empty line.
struct Split {
  std::string_view start;
  std::string_view fields;  // each with its end of line, without the empty line
};
std::optional<Split> split_head(std::string_view head) {
  if (!head.ends_with("\r\n\r\n")) return std::nullopt;
  const auto end = head.find("\r\n");
  return Split{head.substr(0, end), head.substr(end + 2, head.size() - end - 4)};
}

}  // namespace

bool equal_folded(std::string_view a, std::string_view b) {
  const auto fold = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [&fold](char x, char y) { return fold(x) == fold(y); });
}

HeadScan scan_head(std::string_view bytes, std::size_t limit) {
  HeadScan scan;
  if (bytes.starts_with("\r\n")) {
    scan.skip = 2;
    bytes.remove_prefix(2);
  }
  const std::size_t looked_at = std::min(bytes.size(), limit);
  std::size_t line_start = 0;
  for (std::size_t at = 0; at < looked_at; ++at) {
    const char c = bytes[at];
    if (c == '\0') return refuse_scan(400, "a NUL in the header");
    if (c == '\r' && at + 1 < bytes.size() && bytes[at + 1] != '\n') {
      return refuse_scan(400, "a bare CR in the header");
    }
    if (c != '\n') {
      if (line_start == 0 && at >= kMaxStartLine)
        return refuse_scan(414, "the first line is too long");
      continue;
    }
    if (at == 0 || bytes[at - 1] != '\r') return refuse_scan(400, "a bare LF in the header");
    if (at == line_start + 1) {
      if (line_start == 0) return refuse_scan(400, "an empty line instead of a request");
      scan.state = HeadScan::State::kComplete;
      scan.length = at + 1;
      return scan;
    }
    line_start = at + 1;
  }
  if (bytes.size() >= limit) return refuse_scan(431, "the header is too large");
  return scan;
}

RequestResult parse_request(std::string_view text) {
  const auto split = split_head(text);
  if (!split) return refuse(400, "no end of the header");
  const auto beast_fields = beast_field_count<true>(text);
  RequestHead head;
  const auto first = split->start.find(' ');
  const auto last = split->start.rfind(' ');
  if (first == std::string_view::npos || last == first) return refuse(400, "not a request line");
  head.method = split->start.substr(0, first);
  head.target = split->start.substr(first + 1, last - first - 1);
  const std::string_view version = split->start.substr(last + 1);
  if (!is_token(head.method)) return refuse(400, "a method that is not a token");
  if (!is_request_target(head.target)) return refuse(400, "a character that no target has");
  const auto minor = minor_version(version);
  if (!minor) return refuse(version.starts_with("HTTP/") ? 505 : 400, "not HTTP/1.1 or HTTP/1.0");
  head.minor = *minor;
  FieldLines lines = parse_fields(split->fields);
  if (!lines.fields) return {std::nullopt, std::move(lines.error)};
  head.fields = std::move(*lines.fields);
  const FramingResult framing = parse_framing(head.fields, head.minor);
  if (!framing.framing) return {std::nullopt, framing.error};
  head.framing = *framing.framing;
  if (auto error = read_special_fields(head)) return {std::nullopt, std::move(*error)};
  if (!beast_fields || *beast_fields != head.fields.size()) {
    return refuse(400, "a header that two parsers read differently");
  }
  head.keep_alive = keeps_alive(head.fields, head.minor);
  return {std::move(head), {}};
}

Result<ResponseHead> parse_response(std::string_view text) {
  const auto split = split_head(text);
  if (!split) return Error("no end of the header");
  ResponseHead head;
  const std::string_view line = split->start;
  const auto minor = minor_version(line.substr(0, 8));
  const std::string_view digits = line.size() >= 13 ? line.substr(9, 3) : std::string_view();
  const bool well =
      minor && line.size() >= 13 && line[8] == ' ' &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
      line[12] == ' ';
  if (!well) return Error("not a status line");
  head.minor = *minor;
  head.status = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
  if (head.status < 100 || head.status > 599) return Error("a status that does not exist");
  head.reason = line.substr(13);
  if (!is_field_value(head.reason)) return Error("a control character in the status line");
  FieldLines lines = parse_fields(split->fields);
  if (!lines.fields) return Error(lines.error.why);
  head.fields = std::move(*lines.fields);
  const FramingResult framing = parse_framing(head.fields, head.minor);
  if (!framing.framing) return Error(framing.error.why);
  head.framing = *framing.framing;
  if (head.framing.kind == BodyKind::kNone) head.framing.kind = BodyKind::kUntilClose;
  const auto beast_fields = beast_field_count<false>(text);
  if (!beast_fields || *beast_fields != head.fields.size()) {
    return Error("a header that two parsers read differently");
  }
  head.keep_alive = keeps_alive(head.fields, head.minor);
  head.websocket =
      head.minor == 1 && upgrades_to_websocket(head.fields, connection_tokens(head.fields));
  return head;
}

bool came_through(const std::vector<Field>& fields, std::string_view via) {
  const auto values = values_of(fields, "Via");
  // The name is random: nobody else's has it as a part.
  return !via.empty() && std::any_of(values.begin(), values.end(), [via](std::string_view value) {
    return value.find(via) != std::string_view::npos;
  });
}

Framing response_framing(const ResponseHead& head, std::string_view method) {
  const bool bodiless = head.status < 200 || head.status == 204 || head.status == 304;
  if (bodiless || method == "HEAD") return {};
  return head.framing;
}

AbsoluteResult parse_absolute_target(std::string_view target) {
  const auto refuse_target = [](const char* why) {
    return AbsoluteResult{std::nullopt, {400, why}};
  };
  const auto colon = target.find("://");
  if (colon == std::string_view::npos) return refuse_target("not an absolute http:// target");
  const std::string_view scheme = target.substr(0, colon);
  if (equal_folded(scheme, "https")) {
    return refuse_target("https is not fetched on a client's behalf: use CONNECT");
  }
  if (!equal_folded(scheme, "http")) return refuse_target("a scheme other than http");
  const std::string_view rest = target.substr(colon + 3);
  const auto end = rest.find_first_of("/?");
  const std::string_view authority = rest.substr(0, end);
  // An empty port means the default one (RFC 3986 3.2.3).
  const bool empty_port = authority.ends_with(':');
  const auto endpoint = policy::parse_endpoint(
      empty_port ? authority.substr(0, authority.size() - 1) : authority, 80);
  if (!endpoint) return refuse_target("not a host name in its canonical form");
  std::string path = end == std::string_view::npos ? "/" : std::string(rest.substr(end));
  if (path.front() == '?') path.insert(0, 1, '/');
  return {AbsoluteTarget{*endpoint, std::move(path)}, {}};
}

std::vector<std::string> connection_tokens(const std::vector<Field>& fields) {
  std::vector<std::string> tokens;
  for (const std::string_view value : values_of(fields, "Connection")) {
    for (const std::string_view element : list_elements(value)) tokens.emplace_back(element);
  }
  return tokens;
}

bool is_hop_by_hop(std::string_view name, const std::vector<std::string>& connection) {
  for (const char* known :
       {"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate",
        "TE", "Trailer", "Transfer-Encoding", "Upgrade"}) {
    if (equal_folded(name, known)) return true;
  }
  return has_token(connection, name);
}

std::string authority_text(const policy::Endpoint& endpoint) {
  return endpoint.port == 80 ? endpoint.host.text() : endpoint.text();
}

namespace {

void put_framing(std::string& out, const Framing& framing) {
  if (framing.kind == BodyKind::kChunked) out += "Transfer-Encoding: chunked\r\n";
  if (framing.kind == BodyKind::kLength) {
    out += "Content-Length: " + std::to_string(framing.length) + "\r\n";
  }
}

// Every field but those between neighbours, the framing and `besides`.
void put_fields(std::string& out, const std::vector<Field>& fields, std::string_view besides) {
  const auto tokens = connection_tokens(fields);
  for (const Field& field : fields) {
    if (is_hop_by_hop(field.name, tokens) || equal_folded(field.name, "Content-Length") ||
        equal_folded(field.name, besides)) {
      continue;
    }
    out += field.name + ": " + field.value + "\r\n";
  }
}

void put_via(std::string& out, int minor, std::string_view via) {
  if (via.empty()) return;
  out += minor == 0 ? "Via: 1.0 " : "Via: 1.1 ";
  out += via;
  out += "\r\n";
}

}  // namespace

std::string write_request(const RequestHead& head, std::string_view authority,
                          std::string_view origin_target, std::string_view via) {
  std::string out = head.method + " ";
  out += origin_target;
  out += head.minor == 0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n";
  out += "Host: ";
  out += authority;
  out += "\r\n";
  put_fields(out, head.fields, "Host");
  put_via(out, head.minor, via);
  put_framing(out, head.framing);
  if (head.websocket) out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  if (head.minor == 0) out += "Connection: close\r\n";
  return out + "\r\n";
}

std::string write_response(const ResponseHead& head, const Framing& framing, bool keep_alive,
                           int client_minor, std::string_view via) {
  std::string out = "HTTP/1.1 " + std::to_string(head.status) + " " + head.reason + "\r\n";
  put_fields(out, head.fields, "");
  put_via(out, head.minor, via);
  const bool informational = head.status < 200;
  if (head.status == 101) {
    out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  } else if (!informational) {
    // HEAD and 304 tell the length of a body that is not sent; 204 has none to tell of (RFC
    // 9110 8.6), and a client that believed one would take the next response for it.
    const bool tells = framing.kind == BodyKind::kNone && head.framing.kind == BodyKind::kLength &&
                       head.status != 204;
    put_framing(out, tells ? head.framing : framing);
    if (!keep_alive) out += "Connection: close\r\n";
    if (keep_alive && client_minor == 0) out += "Connection: keep-alive\r\n";
  }
  return out + "\r\n";
}

}  // namespace cofferdam::egressproxy::http
