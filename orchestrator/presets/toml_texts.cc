#include "orchestrator/presets/toml_texts.h"

#include <algorithm>

namespace cofferdam::orchestrator {
namespace {

constexpr int kMaxDepth = 32;

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

void append_utf8(std::uint32_t code, std::string* out) {
  const auto byte = [&](std::uint32_t value) { out->push_back(static_cast<char>(value)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0U | (code >> 6U));
    byte(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    byte(0xE0U | (code >> 12U));
    byte(0x80U | ((code >> 6U) & 0x3FU));
    byte(0x80U | (code & 0x3FU));
  } else {
    byte(0xF0U | (code >> 18U));
    byte(0x80U | ((code >> 12U) & 0x3FU));
    byte(0x80U | ((code >> 6U) & 0x3FU));
    byte(0x80U | (code & 0x3FU));
  }
}

class TomlReader final {
 public:
  explicit TomlReader(std::string_view text) : text_(text) {}

  Result<std::map<TomlPath, std::string>> read() {
    TomlPath table;
    while (skip_blank(true), !at_end()) {
      if (peek() == '[') {
        ++at_;
        if (peek() == '[') return wrong("an array of tables");
        table.clear();
        TRY(read_key(&table));
        if (peek() != ']') return wrong("a table's name that does not end");
        ++at_;
      } else {
        TRY(read_pair(table, 0));
      }
      skip_blank(false);
      if (!at_end() && peek() != '\n') return wrong("more than one value on a line");
    }
    return std::move(out_);
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  Error wrong(const std::string& what) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size()));
    return Error("line " + std::to_string(std::count(text_.begin(), end, '\n') + 1) + ": " + what +
                 " is not understood");
  }

  void skip_blank(bool lines) {
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '#') {
        while (!at_end() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  // a."b c".d, with the blanks around it.
  Status read_key(TomlPath* path) {
    while (true) {
      skip_blank(false);
      if (peek() == '"' || peek() == '\'') {
        TRY_ASSIGN(std::string part, read_string());
        path->push_back(std::move(part));
      } else {
        const std::size_t begin = at_;
        while (!at_end() && is_bare(peek())) ++at_;
        if (at_ == begin) return wrong("a key");
        path->emplace_back(text_.substr(begin, at_ - begin));
      }
      skip_blank(false);
      if (peek() != '.') return {};
      ++at_;
    }
  }

  Status read_pair(const TomlPath& table, int depth) {
    TomlPath path = table;
    TRY(read_key(&path));
    if (peek() != '=') return wrong("a line without '='");
    ++at_;
    skip_blank(false);
    return read_value(path, depth);
  }

  Status read_value(const TomlPath& path, int depth) {
    if (depth > kMaxDepth) return wrong("so deep a value");
    switch (peek()) {
      case '"':
      case '\'': {
        TRY_ASSIGN(out_[path], read_string());
        return {};
      }
      case '{':
        return read_inline_table(path, depth);
      case '[':
        return read_array(path, depth);
      default:
        break;
    }
    const std::size_t begin = at_;
    while (!at_end() && std::string_view(",]}#\n").find(peek()) == std::string_view::npos) ++at_;
    return at_ == begin ? Status(wrong("a value")) : Status();
  }

  Status read_inline_table(const TomlPath& path, int depth) {
    ++at_;
    skip_blank(false);
    while (peek() != '}') {
      TRY(read_pair(path, depth + 1));
      skip_blank(false);
      if (peek() == ',') {
        ++at_;
        skip_blank(false);
      } else if (peek() != '}') {
        return wrong("an inline table");
      }
    }
    ++at_;
    return {};
  }

  // Its elements are numbered, so that a string in it is never taken for a key's.
  Status read_array(const TomlPath& path, int depth) {
    ++at_;
    skip_blank(true);
    for (int number = 0; peek() != ']'; ++number) {
      TomlPath element = path;
      element.push_back(std::to_string(number));
      TRY(read_value(element, depth + 1));
      skip_blank(true);
      if (peek() == ',') {
        ++at_;
        skip_blank(true);
      } else if (peek() != ']') {
        return wrong("an array");
      }
    }
    ++at_;
    return {};
  }

  Result<std::string> read_string() {
    const char quote = peek();
    const std::string three(3, quote);
    const bool multi = text_.substr(at_, 3) == three;
    at_ += multi ? 3 : 1;
    if (multi && peek() == '\n') ++at_;
    std::string out;
    while (true) {
      if (at_end() || (!multi && peek() == '\n')) return wrong("a string that does not end");
      if (multi ? text_.substr(at_, 3) == three : peek() == quote) {
        at_ += multi ? 3 : 1;
        return out;
      }
      if (peek() == '\\' && quote == '"') {
        TRY(read_escape(&out));
      } else {
        out.push_back(text_[at_++]);
      }
    }
  }

  Status read_escape(std::string* out) {
    constexpr std::string_view kFrom = "btnfr\"\\";
    constexpr std::string_view kTo = "\b\t\n\f\r\"\\";
    ++at_;
    const char c = peek();
    ++at_;
    if (const std::size_t known = kFrom.find(c); c != '\0' && known != std::string_view::npos) {
      out->push_back(kTo[known]);
      return {};
    }
    if (c == '\n') {
      skip_blank(true);
      return {};
    }
    const std::size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const std::size_t value =
          std::string_view("0123456789abcdef").find(static_cast<char>(peek() | 0x20));
      if (at_end() || value == std::string_view::npos) return wrong("an escape");
      code = code * 16 + static_cast<std::uint32_t>(value);
    }
    if (digits == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return wrong("an escape");
    }
    append_utf8(code, out);
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::map<TomlPath, std::string> out_;
};

}  // namespace

Result<std::map<TomlPath, std::string>> read_toml_texts(std::string_view text) {
  return TomlReader(text).read();
}

}  // namespace cofferdam::orchestrator
