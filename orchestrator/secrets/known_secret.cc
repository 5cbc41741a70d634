#include "orchestrator/secrets/known_secret.h"

#include <algorithm>
#include <array>
#include <set>

#include "common/base/escape.h"
#include "common/base/json_text.h"

namespace cofferdam::orchestrator::secrets {
namespace {

constexpr std::string_view kStandard =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUrl =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string percent_encoded(std::string_view value, std::string_view digits,
                            std::string_view keep) {
  std::string out;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       keep.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4U];
      out += digits[byte & 15U];
    }
  }
  return out;
}

std::string hexadecimal(std::string_view value, std::string_view digits) {
  std::string out;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
  }
  return out;
}

// The letters that depend on nothing but `value`, where `before` bytes stand in front of it.
std::string base64_inside(std::string_view value, std::size_t before, std::string_view alphabet) {
  const std::size_t first = (8 * before + 5) / 6;
  const std::size_t last = 8 * (before + value.size()) / 6;
  std::string out;
  for (std::size_t letter = first; letter < last; ++letter) {
    unsigned bits = 0;
    for (std::size_t bit = 6 * letter; bit < 6 * letter + 6; ++bit) {
      const auto byte = static_cast<unsigned char>(value[bit / 8 - before]);
      bits = (bits << 1U) | ((byte >> (7 - bit % 8)) & 1U);
    }
    out += alphabet[bits];
  }
  return out;
}

std::string as_json(std::string_view value) {
  std::string text = canonical_json(Json(to_json_text(value)));
  return text.size() >= 2 ? text.substr(1, text.size() - 2) : text;
}

void add_spellings(std::string_view value, std::set<Spelling>& found) {
  if (value.size() < kLeastSecret) return;
  found.insert({std::string(value)});
  found.insert({as_json(value)});
  found.insert({escape_for_terminal(value)});
  for (const std::string_view digits : {"0123456789ABCDEF", "0123456789abcdef"}) {
    found.insert({percent_encoded(value, digits, "-_.~")});
    found.insert({percent_encoded(value, digits, "-_.!~*'()")});
    found.insert({hexadecimal(value, digits), true});
  }
  for (std::size_t before = 0; before < 3; ++before) {
    for (const std::string_view alphabet : {kStandard, kUrl}) {
      found.insert({base64_inside(value, before, alphabet), true});
    }
  }
}

}  // namespace

bool names_a_secret(std::string_view variable) {
  std::string upper;
  for (const char c : variable) {
    upper += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  constexpr std::array<std::string_view, 9> kParts = {"TOKEN",   "SECRET",     "PASSWORD",
                                                      "PASSWD",  "PASSPHRASE", "CREDENTIAL",
                                                      "API_KEY", "APIKEY",     "PRIVATE_KEY"};
  constexpr std::array<std::string_view, 3> kEnds = {"_KEY", "_PAT", "_AUTH"};
  return std::any_of(
             kParts.begin(), kParts.end(),
             [&](std::string_view part) { return upper.find(part) != std::string::npos; }) ||
         std::any_of(kEnds.begin(), kEnds.end(),
                     [&](std::string_view end) { return upper.ends_with(end); });
}

std::vector<Spelling> spellings_of(std::string_view value) {
  std::set<Spelling> found;
  add_spellings(value, found);
  while (!value.empty()) {
    const std::size_t end = std::min(value.find('\n'), value.size());
    add_spellings(value.substr(0, end), found);
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  std::vector<Spelling> spellings;
  for (const Spelling& spelling : found) {
    if (spelling.text.size() >= kLeastSecret) spellings.push_back(spelling);
  }
  return spellings;
}

}  // namespace cofferdam::orchestrator::secrets
