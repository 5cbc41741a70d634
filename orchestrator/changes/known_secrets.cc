#include "orchestrator/changes/known_secrets.h"

#include <cstdlib>

#include "common/base/json_text.h"
#include "common/os/files.h"

namespace cofferdam::orchestrator::changes {
namespace {

void add(std::vector<secrets::KnownSecret>& known, const std::string& name,
         const std::string& value) {
  if (!secrets::names_a_secret(name) || value.size() < secrets::kLeastSecret) return;
  known.push_back({name, value});
}

}  // namespace

std::vector<secrets::KnownSecret> known_secrets_of(const SandboxRecord& sandbox) {
  std::vector<secrets::KnownSecret> known;
  const auto text = os::read_file(sandbox.directory / "manifest.json");
  const auto manifest = text.ok() ? parse_json(*text) : Result<Json>(text.error());
  if (!manifest.ok() || !manifest->is_object()) return known;
  const Json env = manifest->value("env", Json::object());
  if (!env.is_object()) return known;
  if (const Json set = env.value("set", Json::object()); set.is_object()) {
    for (const auto& [name, value] : set.items()) {
      if (value.is_string()) add(known, name, value.get<std::string>());
    }
  }
  if (const Json allow = env.value("allow", Json::array()); allow.is_array()) {
    for (const Json& name : allow) {
      if (!name.is_string()) continue;
      const char* value = std::getenv(name.get<std::string>().c_str());
      if (value != nullptr) add(known, name.get<std::string>(), value);
    }
  }
  return known;
}

}  // namespace cofferdam::orchestrator::changes
