#include "orchestrator/changes/change_json.h"

#include <array>
#include <cstdio>

#include "common/base/escape.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"absent", "file", "directory", "symlink",
                                                    "other"};

std::string hex_of(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(c));
    out += digits.data();
  }
  return out;
}

std::string_view to_text(RiskLevel level) {
  switch (level) {
    case RiskLevel::kNone:
      return "none";
    case RiskLevel::kListed:
      return "listed";
    case RiskLevel::kNeedsAllowance:
      return "needs_allowance";
  }
  return "none";
}

}  // namespace

std::string_view to_text(layer::Kind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::string octal(std::uint32_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode);
  return text.data();
}

Json path_to_json(std::string_view path) {
  Json json = {{"path", to_json_text(path)}};
  if (!is_valid_utf8(path)) json["path_hex"] = hex_of(path);
  return json;
}

Result<std::string> path_from_json(const Json& object) {
  if (!object.is_object()) return Error("a path is missing");
  if (object.contains("path_hex") && object["path_hex"].is_string()) {
    const auto hex = object["path_hex"].get<std::string>();
    std::string path;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      unsigned value = 0;
      if (std::sscanf(hex.c_str() + i, "%2x", &value) != 1)
        return Error("path_hex is not hexadecimal");
      path += static_cast<char>(value);
    }
    return path;
  }
  if (object.contains("path") && object["path"].is_string())
    return object["path"].get<std::string>();
  return Error("a path is missing");
}

Json to_json(const ObjectState& state) {
  Json json = {{"kind", to_text(state.kind)}};
  if (state.absent()) return json;
  if (state.kind != layer::Kind::kSymlink) json["mode"] = octal(state.mode);
  if (state.kind != layer::Kind::kDirectory) json["size"] = state.size;
  if (state.sha256.has_value()) json["sha256"] = to_hex(*state.sha256);
  return json;
}

Result<ObjectState> state_from_json(const Json& json) {
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) {
    return Error("an object's state is missing");
  }
  ObjectState state;
  const auto kind = json["kind"].get<std::string>();
  bool found = false;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] == kind) {
      state.kind = static_cast<layer::Kind>(i);
      found = true;
    }
  }
  if (!found) return Error("unknown kind of object: " + kind);
  if (json.contains("mode") && json["mode"].is_string()) {
    unsigned mode = 0;
    if (std::sscanf(json["mode"].get<std::string>().c_str(), "%o", &mode) != 1) {
      return Error("mode is not octal");
    }
    state.mode = mode & 07777U;
  }
  if (json.contains("size") && json["size"].is_number_unsigned()) state.size = json["size"];
  if (json.contains("sha256") && json["sha256"].is_string()) {
    state.sha256 = digest_from_hex(json["sha256"].get<std::string>());
  }
  return state;
}

Json to_json(const Omission& omission) {
  Json json = path_to_json(omission.path);
  json["reason"] = omission.reason;
  json["detail"] = to_json_text(omission.detail);
  json["entries"] = omission.entries;
  return json;
}

Json to_json(const Ignored& ignored) {
  Json json = path_to_json(ignored.path);
  json["entries"] = ignored.entries;
  json["bytes"] = ignored.bytes;
  return json;
}

Json to_json(const Change& change) {
  Json json = path_to_json(change.path);
  json["change"] = to_text(change.kind);
  json["base"] = to_json(change.base);
  json["base"]["known"] = change.base_known;
  json["theirs"] = to_json(change.theirs);
  if (change.risk.level != RiskLevel::kNone) {
    json["risk"] = {{"level", to_text(change.risk.level)},
                    {"rule", change.risk.rule},
                    {"reason", change.risk.reason}};
  }
  if (!change.secret.empty()) json["secret"] = change.secret;
  return json;
}

Json row_of(const ChangeSet& set, const std::map<std::size_t, std::size_t>& away,
            std::size_t index) {
  Json row = to_json(set.changes[index]);
  if (const auto found = set.renames.find(index); found != set.renames.end()) {
    const Change& from = set.changes[found->second.from];
    row["change"] = "renamed";
    row["renamed"] = {{"from", path_to_json(from.path)},
                      {"base", to_json(from.base)},
                      {"similarity", found->second.similarity}};
  }
  if (const auto found = away.find(index); found != away.end()) {
    row["renamed_to"] = path_to_json(set.changes[found->second].path);
  }
  return row;
}

Json left_out_json(const ChangeSet& set) {
  Json json = {{"omitted", Json::array()},
               {"ignored", Json::array()},
               {"ignored_entries", set.ignored_entries()},
               {"settled", set.settled}};
  for (const Omission& omission : set.omissions) json["omitted"].push_back(to_json(omission));
  for (const Ignored& ignored : set.ignored) json["ignored"].push_back(to_json(ignored));
  return json;
}

Json to_json(const ChangeSet& set) {
  Json json = left_out_json(set);
  Json rows = Json::array();
  const auto away = set.renamed_away();
  for (const std::size_t i : set.by_risk()) rows.push_back(row_of(set, away, i));
  json["changes"] = std::move(rows);
  return json;
}

}  // namespace cofferdam::orchestrator::changes
