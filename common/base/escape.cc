#include "common/base/escape.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace cofferdam {
namespace {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t length = 0;  // 0: the byte starts no valid sequence
};

// Decodes one code point by RFC 3629 section 3: no overlong forms, no surrogates, <= U+10FFFF.
CodePoint decode(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return {first, 1};
  std::size_t length = 0;
  std::uint32_t value = 0;
  std::uint32_t minimum = 0;
  if ((first & 0xE0U) == 0xC0) {
    length = 2, value = first & 0x1FU, minimum = 0x80;
  } else if ((first & 0xF0U) == 0xE0) {
    length = 3, value = first & 0x0FU, minimum = 0x800;
  } else if ((first & 0xF8U) == 0xF0) {
    length = 4, value = first & 0x07U, minimum = 0x10000;
  } else {
    return {};
  }
  if (text.size() < length) return {};
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80) return {};
    value = (value << 6U) | (at(i) & 0x3FU);
  }
  if (value < minimum || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {};
  return {value, length};
}

bool is_invisible(std::uint32_t c) {
  return (c >= 0x80 && c <= 0x9F) || c == 0xAD || c == 0x61C || c == 0x180E ||
         (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
         (c >= 0xE0000 && c <= 0xE007F);
}

}  // namespace

std::string escape_for_terminal(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  char buffer[16];
  while (!text.empty()) {
    const CodePoint c = decode(text);
    if (c.length == 0) {
      std::snprintf(buffer, sizeof buffer, "\\x%02x", static_cast<unsigned char>(text[0]));
      out += buffer;
      text.remove_prefix(1);
      continue;
    }
    if (c.value == '\\') {
      out += "\\\\";
    } else if (c.value == '\n' || c.value == '\t') {
      if (keep_lines) {
        out += static_cast<char>(c.value);
      } else {
        out += c.value == '\n' ? "\\n" : "\\t";
      }
    } else if (c.value < 0x20 || c.value == 0x7F) {
      std::snprintf(buffer, sizeof buffer, "\\x%02x", c.value);
      out += buffer;
    } else if (is_invisible(c.value)) {
      std::snprintf(buffer, sizeof buffer, "\\u{%04x}", c.value);
      out += buffer;
    } else {
      out.append(text.substr(0, c.length));
    }
    text.remove_prefix(c.length);
  }
  return out;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = decode(text);
    if (c.length == 0) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

std::string to_json_text(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const CodePoint c = decode(bytes);
    if (c.length == 0) {
      out += "\xEF\xBF\xBD";
      bytes.remove_prefix(1);
      continue;
    }
    out.append(bytes.substr(0, c.length));
    bytes.remove_prefix(c.length);
  }
  return out;
}

}  // namespace cofferdam
