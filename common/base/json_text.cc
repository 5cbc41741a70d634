#include "common/base/json_text.h"

namespace cofferdam {

Result<Json> parse_json(std::string_view text) {
  constexpr int kMaxDepth = 64;
  bool too_deep = false;
  try {
    const auto guard = [&too_deep](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) too_deep = true;
      return !too_deep;
    };
    Json value = Json::parse(text.begin(), text.end(), guard);
    if (too_deep) return Error("JSON is nested deeper than 64");
    return value;
  } catch (const Json::exception& e) {
    return Error(std::string("JSON: ") + e.what());
  }
}

std::string canonical_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string printable_json(const Json& value, int indent) {
  std::string text = value.dump(indent, ' ', true, Json::error_handler_t::replace);
  // The library leaves DEL as it is; outside a string there is none.
  for (std::size_t at = 0; (at = text.find('\x7f', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u007f");
  }
  return text;
}

}  // namespace cofferdam
