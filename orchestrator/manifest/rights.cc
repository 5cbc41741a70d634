#include "orchestrator/manifest/rights.h"

#include <algorithm>
#include <set>

namespace cofferdam::orchestrator {
namespace {

// What names an element of a list: the text itself, or the field that identifies a map.
std::string name_of(const Json& element) {
  if (element.is_string()) return element.get<std::string>();
  if (element.is_object()) {
    for (const char* field : {"rule", "name", "target", "source", "pattern", "paths"}) {
      if (!element.contains(field)) continue;
      const Json& value = element.at(field);
      return value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  return element.dump();
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

class Rights final {
 public:
  explicit Rights(const Json& stored) {
    const Json origins = stored.value("origins", Json::object());
    for (const auto& [key, from] : origins.items()) {
      if (from.is_string()) origins_[key] = from.get<std::string>();
    }
  }

  void add(const std::string& path, const Json& value) {
    if (path == "origins" || path == "version") return;
    if (value.is_object() && !(value.empty() && path != "network.budgets")) {
      for (const auto& [name, child] : value.items()) {
        add(path.empty() ? name : path + "." + name, child);
      }
      return;
    }
    if (value.is_array() && !value.empty()) {
      for (const Json& element : value) add_element(path, element);
      return;
    }
    const bool nothing = value.is_null() || value.empty() || value == "";
    rights_.push_back({path, nothing ? "none" : text_of(value), origin_of(path, "")});
  }

  std::vector<Right> take() { return std::move(rights_); }

 private:
  // An element says itself where it came from, or the origins do.
  void add_element(const std::string& path, const Json& element) {
    if (element.is_object() && element.contains("action") && element.contains("pattern")) {
      const std::string key = "workspace." + text_of(element.at("action"));
      const std::string pattern = text_of(element.at("pattern"));
      rights_.push_back({key, pattern, origin_of(key, pattern, element.value("source", ""))});
      return;
    }
    Json shown = element;
    std::string source;
    if (element.is_object() && element.contains("rule")) {
      source = element.value("source", "");
      shown.erase("source");
      if (shown.size() == 1) shown = shown.at("rule");
    }
    rights_.push_back({path, text_of(shown), origin_of(path, name_of(element), source)});
  }

  std::string origin_of(std::string path, const std::string& element,
                        const std::string& source = {}) const {
    // Durations are stored in milliseconds, under a name that says so.
    if (path.ends_with("_ms")) path.resize(path.size() - 3);
    for (const std::string& key : {path + "[" + element + "]", path}) {
      if (const auto found = origins_.find(key); found != origins_.end()) return found->second;
    }
    if (path == "mounts" && !element.empty()) {
      const auto found = origins_.find("filesystem.read[" + element + "]");
      if (found != origins_.end()) return found->second;
    }
    return source.empty() ? "default" : source;
  }

  std::map<std::string, std::string> origins_;
  std::vector<Right> rights_;
};

void note(const std::string& path, const Json& value, std::string_view origin,
          std::map<std::string, std::string>* origins) {
  if (value.is_object()) {
    for (const auto& [name, child] : value.items()) {
      note(path.empty() ? name : path + "." + name, child, origin, origins);
    }
    return;
  }
  if (value.is_array()) {
    for (const Json& element : value) {
      (*origins)[path + "[" + name_of(element) + "]"] = origin;
    }
    return;
  }
  (*origins)[path] = origin;
}

}  // namespace

void note_origins(const Json& keys, std::string_view origin,
                  std::map<std::string, std::string>* origins) {
  note("", keys, origin, origins);
}

std::vector<Right> rights_of(const Json& stored) {
  Rights rights(stored);
  rights.add("", stored);
  return rights.take();
}

std::vector<std::string> rights_difference(const Json& from, const Json& to) {
  const auto lines_of = [](const Json& stored) {
    std::set<std::string> lines;
    for (const Right& right : rights_of(stored)) lines.insert(right.key + " " + right.value);
    return lines;
  };
  const std::set<std::string> before = lines_of(from);
  const std::set<std::string> after = lines_of(to);
  std::set<std::string> all = before;
  all.insert(after.begin(), after.end());
  std::vector<std::string> out;
  for (const std::string& line : all) {
    if (before.contains(line) && after.contains(line)) continue;
    out.push_back((before.contains(line) ? "- " : "+ ") + line);
  }
  return out;
}

}  // namespace cofferdam::orchestrator
