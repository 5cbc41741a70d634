// Rights one by one: every key of a manifest with its value and where it came from. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "orchestrator/manifest/manifest.h"

namespace cofferdam::orchestrator {

struct Right {
  std::string key;    // "process.pids", "network.rules"
  std::string value;  // JSON, or a list's element as text
  std::string from;
};

// `keys` are what read_manifest_yaml gave: each leaf and each element of a list is from `origin`.
void note_origins(const Json& keys, std::string_view origin,
                  std::map<std::string, std::string>* origins);

// Every right of a manifest as it is stored (stored_manifest_json), in the order of the keys; an
// empty list is one right, "none". Without an origin a value is the program's default.
std::vector<Right> rights_of(const Json& stored);

// What differs between two, as lines: "- KEY VALUE", "+ KEY VALUE".
std::vector<std::string> rights_difference(const Json& from, const Json& to);

}  // namespace cofferdam::orchestrator
