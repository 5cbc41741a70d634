#include "orchestrator/manifest/read_yaml.h"

#include <yaml-cpp/yaml.h>

#include <exception>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orchestrator/manifest/check_value.h"
#include "orchestrator/manifest/keys.h"

namespace cofferdam::orchestrator {
namespace {

// Aliases let a small text stand for a huge tree.
constexpr int kMaxNodes = 20'000;

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  // `key` is the text shown in errors, `path` the key's name in the table.
  Result<Json> map(const YAML::Node& node, const std::string& path) {
    if (!node.IsMap()) return wrong(node, path, "must be a map of keys");
    Json out = Json::object();
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return wrong(entry.first, path, "a key must be plain text");
      const std::string name = entry.first.Scalar();
      const std::string child = path.empty() ? name : path + "." + name;
      const KeySpec* key = find_key(child);
      if (key == nullptr) return wrong(entry.first, child, "unknown key");
      if (!seen.insert(name).second) return wrong(entry.first, child, "given twice");
      if (key->shape == Shape::kLater) return wrong(entry.first, child, "not in this version");
      auto value = read(entry.second, *key);
      if (!value.ok()) return value.error();
      out[name] = std::move(value).value();
    }
    return out;
  }

 private:
  Error wrong(const YAML::Node& node, std::string_view path, const std::string& what) const {
    const int line = node.Mark().line;
    return Error(file_ + ":" + std::to_string(line < 0 ? 1 : line + 1) + ": " +
                 (path.empty() ? "" : std::string(path) + ": ") + what);
  }

  Result<Json> read(const YAML::Node& node, const KeySpec& key) {
    if (++nodes_ > kMaxNodes) return wrong(node, key.path, "too many values");
    const std::string path(key.path);
    switch (key.shape) {
      case Shape::kMap:
        return map(node, path);
      case Shape::kMapList:
        return list(node, key, [&](const YAML::Node& item) { return map(item, path + "[]"); });
      case Shape::kPathList:
      case Shape::kGlobList:
      case Shape::kDenyList:
      case Shape::kAddressList:
      case Shape::kServerList:
      case Shape::kNat64List:
      case Shape::kVariableList:
      case Shape::kWordList:
      case Shape::kIncludeList:
      case Shape::kEnumList:
        return list(node, key, [&](const YAML::Node& item) { return scalar(item, key); });
      case Shape::kRuleList:
        return list(node, key, [&](const YAML::Node& item) { return rule(item, key); });
      case Shape::kVariableMap:
        return variables(node, key);
      default:
        return scalar(node, key);
    }
  }

  template <typename ReadItem>
  Result<Json> list(const YAML::Node& node, const KeySpec& key, ReadItem read_item) {
    if (!node.IsSequence()) return wrong(node, key.path, "must be a list");
    Json out = Json::array();
    for (const YAML::Node& item : node) {
      if (++nodes_ > kMaxNodes) return wrong(item, key.path, "too many values");
      auto value = read_item(item);
      if (!value.ok()) return value.error();
      out.push_back(std::move(value).value());
    }
    return out;
  }

  // A rule's text, or {rule, budgets}.
  Result<Json> rule(const YAML::Node& node, const KeySpec& key) {
    if (!node.IsMap()) return scalar(node, key);
    auto out = map(node, std::string(key.path) + "[]");
    if (out.ok() && !out->contains("rule")) return wrong(node, key.path, "no `rule`");
    return out;
  }

  Result<Json> variables(const YAML::Node& node, const KeySpec& key) {
    if (!node.IsMap()) return wrong(node, key.path, "must be a map of names to values");
    Json out = Json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
        return wrong(entry.first, key.path, "names and values must be plain text");
      }
      const std::string& name = entry.first.Scalar();
      if (out.contains(name)) return wrong(entry.first, key.path, name + " given twice");
      if (auto fault = variable_fault(name, entry.second.Scalar())) {
        return wrong(entry.first, key.path, *fault);
      }
      out[name] = entry.second.Scalar();
    }
    return out;
  }

  Result<Json> scalar(const YAML::Node& node, const KeySpec& key) {
    if (!node.IsScalar()) return wrong(node, key.path, "must be one value");
    auto value = check_value(key, node.Scalar());
    if (!value.ok()) return wrong(node, key.path, value.error().message());
    return value;
  }

  std::string file_;
  int nodes_ = 0;
};

}  // namespace

Result<Json> read_manifest_yaml(std::string_view text, std::string_view file) {
  const std::string shown(file);
  if (text.size() > kMaxManifestBytes) return Error(shown + ": larger than 1 MiB");
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() != 1) return Error(shown + ":1: must hold exactly one YAML document");
    auto manifest = Reader(file).map(documents[0], "");
    if (manifest.ok() && !manifest->contains("version")) {
      return Error(shown + ":1: version: missing; write `version: 1`");
    }
    return manifest;
  } catch (const YAML::Exception& error) {
    return Error(shown + ":" + std::to_string(error.mark.line < 0 ? 1 : error.mark.line + 1) +
                 ": " + error.msg);
  } catch (const std::exception& error) {
    return Error(shown + ": " + error.what());
  }
}

}  // namespace cofferdam::orchestrator
