// FoundSecrets: the secrets of one object, to be compared with those that it held before. Bounded.
#pragma once

#include <map>
#include <string>

#include "orchestrator/secrets/secret_scanner.h"

namespace cofferdam::orchestrator::secrets {

// Text -> what it is. The empty text stands for all that there was no room for.
using FoundSecrets = std::map<std::string, std::string>;

inline constexpr std::size_t kMaxFound = 1000;
inline constexpr const char* kTooMany = "more secrets than can be compared";

// Puts what it finds into `found`, which outlives it.
SecretSearch search_into(const SecretScanner& scanner, FoundSecrets& found);
// Takes away what was there before. What there was no room for stays: nobody knows what it was.
void forget_known(FoundSecrets& found, const FoundSecrets& before);

}  // namespace cofferdam::orchestrator::secrets
