#include "egressproxy/http_syntax.h"

#include <algorithm>
#include <charconv>

namespace cofferdam::egressproxy::http {
namespace {

unsigned char octet(char c) {
  return static_cast<unsigned char>(c);
}

bool is_token_char(char c) {
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

FieldLines refuse(int status, const char* why) {
  return {std::nullopt, {status, why}};
}
FramingResult bad_framing(int status, const char* why) {
  return {std::nullopt, {status, why}};
}

}  // namespace

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

bool is_field_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\t' || (octet(c) >= 0x20 && octet(c) != 0x7f); });
}

bool is_request_target(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return octet(c) > 0x20 && octet(c) < 0x7f && c != '#';
  });
}

std::string_view trim_ows(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> list_elements(std::string_view value) {
  std::vector<std::string_view> elements;
  while (true) {
    const auto comma = value.find(',');
    const std::string_view element = trim_ows(value.substr(0, comma));
    if (!element.empty()) elements.push_back(element);
    if (comma == std::string_view::npos) return elements;
    value.remove_prefix(comma + 1);
  }
}

FieldLines parse_fields(std::string_view lines) {
  std::vector<Field> fields;
  while (!lines.empty()) {
    const auto end = lines.find("\r\n");
    if (end == std::string_view::npos) return refuse(400, "a header line without an end");
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end + 2);
    if (line.empty()) return refuse(400, "an empty line inside the header");
    if (line.front() == ' ' || line.front() == '\t') return refuse(400, "a folded header line");
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return refuse(400, "a header line without a colon");
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trim_ows(line.substr(colon + 1));
    if (!is_token(name)) return refuse(400, "a header name that is not a token");
    if (!is_field_value(value)) return refuse(400, "a control character in a header value");
    if (fields.size() >= kMaxFields) return refuse(431, "too many header fields");
    fields.push_back({std::string(name), std::string(value)});
  }
  return {std::move(fields), {}};
}

std::vector<std::string_view> values_of(const std::vector<Field>& fields, std::string_view name) {
  std::vector<std::string_view> values;
  for (const Field& field : fields) {
    if (equal_folded(field.name, name)) values.emplace_back(field.value);
  }
  return values;
}

FramingResult parse_framing(const std::vector<Field>& fields, int minor) {
  const auto codings = values_of(fields, "Transfer-Encoding");
  const auto lengths = values_of(fields, "Content-Length");
  Framing framing;
  if (!codings.empty()) {
    if (minor == 0) return bad_framing(400, "Transfer-Encoding in HTTP/1.0");
    if (!lengths.empty()) return bad_framing(400, "both Transfer-Encoding and Content-Length");
    if (codings.size() > 1) return bad_framing(400, "more than one Transfer-Encoding");
    if (!equal_folded(codings.front(), "chunked")) {
      return bad_framing(501, "a transfer coding other than chunked");
    }
    framing.kind = BodyKind::kChunked;
    return {framing, {}};
  }
  if (lengths.empty()) return {framing, {}};
  if (lengths.size() > 1) return bad_framing(400, "more than one Content-Length");
  const std::string_view digits = lengths.front();
  const bool canonical =
      !digits.empty() && digits.size() <= 19 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
      (digits == "0" || digits.front() != '0');
  std::uint64_t length = 0;
  if (canonical) std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (!canonical || length > INT64_MAX) return bad_framing(400, "not a Content-Length");
  framing.kind = BodyKind::kLength;
  framing.length = length;
  return {framing, {}};
}

}  // namespace cofferdam::egressproxy::http
