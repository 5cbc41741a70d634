// The lexical rules of RFC 9110 5.6 and RFC 9112. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egressproxy/http_head.h"

namespace cofferdam::egressproxy::http {

bool is_token(std::string_view text);
// VCHAR, obs-text, SP and HTAB.
bool is_field_value(std::string_view text);
// Printable ASCII without space and '#'.
bool is_request_target(std::string_view text);
std::string_view trim_ows(std::string_view text);
// The elements of a comma-separated list, trimmed, empty ones left out.
std::vector<std::string_view> list_elements(std::string_view value);

// The field lines between the start line and the empty line.
struct FieldLines {
  std::optional<std::vector<Field>> fields;
  HeadError error;
};
FieldLines parse_fields(std::string_view lines);

// Every value of fields of that name.
std::vector<std::string_view> values_of(const std::vector<Field>& fields, std::string_view name);

// Content-Length and Transfer-Encoding (RFC 9112 6.1, 6.2, 6.3). Nothing said: kNone.
struct FramingResult {
  std::optional<Framing> framing;
  HeadError error;
};
FramingResult parse_framing(const std::vector<Field>& fields, int minor);

}  // namespace cofferdam::egressproxy::http
