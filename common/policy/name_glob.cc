#include "common/policy/name_glob.h"

#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

namespace cofferdam::policy {
namespace {

using Byte = unsigned char;

Byte lower(Byte c) {
  return c >= 'A' && c <= 'Z' ? static_cast<Byte>(c - 'A' + 'a') : c;
}

struct NamedClass {
  std::string_view name;
  int (*test)(int);
};
constexpr std::array<NamedClass, 12> kClasses = {{{"alnum", std::isalnum},
                                                  {"alpha", std::isalpha},
                                                  {"blank", std::isblank},
                                                  {"cntrl", std::iscntrl},
                                                  {"digit", std::isdigit},
                                                  {"graph", std::isgraph},
                                                  {"lower", std::islower},
                                                  {"print", std::isprint},
                                                  {"punct", std::ispunct},
                                                  {"space", std::isspace},
                                                  {"upper", std::isupper},
                                                  {"xdigit", std::isxdigit}}};

struct Bracket {
  std::size_t end = 0;  // index after ']', 0 when the bracket is malformed
  bool matched = false;
};

// Evaluates the bracket that starts at pattern[at] == '['. Bytes above 127 belong to no class.
Bracket match_bracket(std::string_view pattern, std::size_t at, Byte c, bool fold) {
  std::size_t i = at + 1;
  bool negated = false;
  if (i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^')) negated = true, ++i;
  bool matched = false;
  bool first = true;
  for (; i < pattern.size() && (first || pattern[i] != ']'); first = false) {
    if (pattern.substr(i, 2) == "[:") {
      const std::size_t close = pattern.find(":]", i + 2);
      if (close == std::string_view::npos) return {};
      const std::string_view name = pattern.substr(i + 2, close - i - 2);
      const NamedClass* found = nullptr;
      for (const NamedClass& k : kClasses) {
        if (k.name == name) found = &k;
      }
      if (found == nullptr) return {};
      if (c < 128 &&
          (found->test(c) != 0 || (fold && std::isalpha(c) != 0 && found->test(c ^ 0x20) != 0))) {
        matched = true;
      }
      i = close + 2;
      continue;
    }
    if (pattern[i] == '\\' && ++i >= pattern.size()) return {};
    const Byte from = static_cast<Byte>(pattern[i++]);
    Byte to = from;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      ++i;
      if (pattern[i] == '\\' && ++i >= pattern.size()) return {};
      to = static_cast<Byte>(pattern[i++]);
    }
    const auto in_range = [&](Byte b) { return from <= b && b <= to; };
    if (in_range(c)) matched = true;
    if (fold && std::isalpha(c) != 0 && in_range(static_cast<Byte>(c ^ 0x20))) matched = true;
  }
  if (i >= pattern.size()) return {};
  return {i + 1, matched != negated};
}

// Whether pattern[at…] starts with something that matches `c`; the index after it.
std::pair<bool, std::size_t> match_one(std::string_view pattern, std::size_t at, Byte c,
                                       bool fold) {
  const auto p = static_cast<Byte>(pattern[at]);
  if (p == '?') return {true, at + 1};
  if (p == '[') {
    const Bracket b = match_bracket(pattern, at, c, fold);
    return {b.end != 0 && b.matched, b.end == 0 ? at + 1 : b.end};
  }
  std::size_t end = at + 1;
  Byte literal = p;
  if (p == '\\' && end < pattern.size()) literal = static_cast<Byte>(pattern[end++]);
  return {fold ? lower(literal) == lower(c) : literal == c, end};
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view name, bool fold_case) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // index after the last '*'
  std::size_t star_name = 0;                  // where that star's match ends now
  while (n < name.size()) {
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = ++p;
        star_name = n;
        continue;
      }
      const auto [hit, next] = match_one(pattern, p, static_cast<Byte>(name[n]), fold_case);
      if (hit) {
        p = next;
        ++n;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    p = star;
    n = ++star_name;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool is_valid_glob(std::string_view pattern) {
  for (std::size_t i = 0; i < pattern.size();) {
    if (pattern[i] == '\\') {
      if (i + 1 >= pattern.size()) return false;
      i += 2;
    } else if (pattern[i] == '[') {
      const Bracket b = match_bracket(pattern, i, 'x', false);
      if (b.end == 0) return false;
      i = b.end;
    } else {
      ++i;
    }
  }
  return true;
}

bool is_literal(std::string_view pattern) {
  return pattern.find_first_of("*?[\\") == std::string_view::npos;
}

}  // namespace cofferdam::policy
