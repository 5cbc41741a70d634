#include "common/log/event_line.h"

#include <algorithm>
#include <charconv>

#include "common/base/json_text.h"

namespace cofferdam::log {
namespace {

bool is_plain(char c) {
  return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

void append_key(std::string& to, std::string_view key) {
  if (!to.empty()) to += ',';
  to += '"';
  to += key;
  to += "\":";
}

void append_number(std::string& to, std::uint64_t value) {
  std::array<char, 20> digits{};
  const auto [end, code] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  (void)code;
  to.append(digits.data(), end);
}

}  // namespace

void append_json_string(std::string& to, std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), is_plain)) {
    to += canonical_json(Json(text));
    return;
  }
  to += '"';
  to += text;
  to += '"';
}

void EventLine::clear() {
  stable_.clear();
  changing_.clear();
  sums_ = {};
}

void EventLine::add(std::string_view key, std::string_view value) {
  append_key(stable_, key);
  append_json_string(stable_, value);
}

void EventLine::add(std::string_view key, std::uint64_t value) {
  append_key(stable_, key);
  append_number(stable_, value);
}

void EventLine::add_flag(std::string_view key, bool value) {
  add_json(key, value ? "true" : "false");
}

void EventLine::add_json(std::string_view key, std::string_view json) {
  append_key(stable_, key);
  stable_ += json;
}

void EventLine::add_sum(std::string_view key, std::uint64_t value) {
  add_measure(key, value);
  for (Sum& sum : sums_) {
    if (!sum.key.empty()) continue;
    sum = {key, value};
    return;
  }
}

void EventLine::add_measure(std::string_view key, std::uint64_t value) {
  append_key(changing_, key);
  append_number(changing_, value);
}

}  // namespace cofferdam::log
