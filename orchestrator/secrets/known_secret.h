// Secrets whose values are known: what is given to a sandbox by name must not come out of it.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace cofferdam::orchestrator::secrets {

struct KnownSecret {
  std::string name;  // what a person calls it; shown
  std::string value;
};

// Values below this many bytes are not looked for: they would be found everywhere.
inline constexpr std::size_t kLeastSecret = 8;

// Whether a variable of this name usually holds a secret (TOKEN, SECRET, PASSWORD, API_KEY, …).
bool names_a_secret(std::string_view variable);

struct Spelling {
  std::string text;
  bool wraps = false;  // programs that write it break it into lines
  auto operator<=>(const Spelling&) const = default;
};

// The texts to look for: the value and each long enough line of it; as a URL and as JSON spell it;
// in hexadecimal, in base64 at each of the three places that it can have in a longer text. Each
// once.
std::vector<Spelling> spellings_of(std::string_view value);

}  // namespace cofferdam::orchestrator::secrets
