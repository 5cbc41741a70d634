#include "orchestrator/secrets/found_secrets.h"

namespace cofferdam::orchestrator::secrets {

SecretSearch search_into(const SecretScanner& scanner, FoundSecrets& found) {
  return {scanner, [&found](std::string_view secret, std::string_view what) {
            if (found.size() < kMaxFound) {
              found.emplace(secret, what);
            } else if (!found.contains(std::string(secret))) {
              found.emplace("", kTooMany);
            }
          }};
}

void forget_known(FoundSecrets& found, const FoundSecrets& before) {
  for (const auto& [text, what] : before) {
    if (!text.empty()) found.erase(text);
  }
}

}  // namespace cofferdam::orchestrator::secrets
