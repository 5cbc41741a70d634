#include "orchestrator/changes/known_secrets.h"

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

// A secret that the manifest gave to a command, from where it came. What a command printed is not
// asked for again.
void add_given(std::vector<secrets::KnownSecret>& known, const Json& secret) {
  constexpr std::size_t kMaxSecret = 64U << 10U;
  const Json from = secret.value("from", Json::object());
  std::string value;
  if (const char* own = std::getenv(from.value("env", "").c_str()); own != nullptr) value = own;
  if (const std::string file = from.value("file", ""); !file.empty()) {
    if (auto text = os::read_regular_file(file, kMaxSecret); text.ok()) value = std::move(*text);
  }
  while (value.ends_with('\n') || value.ends_with('\r')) value.pop_back();
  if (value.size() >= secrets::kLeastSecret) known.push_back({secret.value("name", ""), value});
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
    add_given(known, secret);
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
