#include "orchestrator/changes/known_secrets.h"

#include <cerrno>
#include <cstdlib>

#include "common/base/json_text.h"
#include "common/os/files.h"
#include "common/os/regular_file.h"
#include "orchestrator/secrets/secret_scanner.h"

namespace cofferdam::orchestrator::changes {
namespace {

void add(std::vector<secrets::KnownSecret>& known, const std::string& name,
         const std::string& value) {
  if (!secrets::names_a_secret(name) || value.size() < secrets::kLeastSecret) return;
  known.push_back({name, value});
}

// A secret that the manifest gave to a command, from where it came; empty: it is not there any
// more. What a command printed is not asked for again.
std::string value_now(const Json& secret) {
  constexpr std::size_t kMaxSecret = 64U << 10U;
  const Json from = secret.value("from", Json::object());
  std::string value;
  if (const char* own = std::getenv(from.value("env", "").c_str()); own != nullptr) value = own;
  if (const std::string file = from.value("file", ""); !file.empty()) {
    if (auto text = os::read_regular_file(file, kMaxSecret); text.ok()) value = std::move(*text);
  }
  while (value.ends_with('\n') || value.ends_with('\r')) value.pop_back();
  return value.size() >= secrets::kLeastSecret ? value : "";
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
  for (const Json& secret : manifest->value("secrets", Json::array())) {
    if (std::string value = value_now(secret); !value.empty()) {
      known.push_back({secret.value("name", ""), std::move(value)});
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

Result<std::vector<std::string>> secrets_not_looked_for(const SandboxRecord& sandbox) {
  std::vector<std::string> names;
  const auto text = os::read_file(sandbox.directory / "manifest.json");
  if (!text.ok() && text.error().error_number() == ENOENT) return names;  // it gave nothing
  if (!text.ok()) return text.error();
  TRY_ASSIGN(const Json manifest, parse_json(*text));
  if (!manifest.is_object()) return Error("manifest.json: not an object");
  for (const Json& secret : manifest.value("secrets", Json::array())) {
    if (secret.is_object() && value_now(secret).empty()) names.push_back(secret.value("name", ""));
  }
  return names;
}

Result<std::string> redacted(const SandboxRecord& sandbox, std::string_view text) {
  TRY_ASSIGN(const auto scanner, secrets::SecretScanner::built_in(known_secrets_of(sandbox)));
  secrets::SecretRedactor redactor(scanner);
  std::string shown;
  const auto take = [&](std::string_view bytes) {
    shown += bytes;
    return Status();
  };
  TRY(redactor.feed(text, take));
  TRY(redactor.finish(take));
  return shown;
}

}  // namespace cofferdam::orchestrator::changes
