#include "orchestrator/changes/forbidden_names.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace cofferdam::orchestrator::changes {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};
// Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt): what HFS+ (Apple TN1150) or a
// case-folding ext4 may leave out of a comparison.
constexpr Range kIgnorable[] = {
    {0xAD, 0xAD},       {0x34F, 0x34F},     {0x61C, 0x61C},   {0x115F, 0x1160}, {0x17B4, 0x17B5},
    {0x180B, 0x180F},   {0x200B, 0x200F},   {0x202A, 0x202E}, {0x2060, 0x206F}, {0x3164, 0x3164},
    {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFF8}, {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
};

// The bytes of an ignorable code point at the start of `text`, 0 when there is none.
std::size_t ignorable_length(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t first = at(0);
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  if (length == 1 || text.size() < length) return 0;
  std::uint32_t c = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80U) return 0;
    c = (c << 6U) | (at(i) & 0x3FU);
  }
  for (const Range& range : kIgnorable) {
    if (c >= range.first && c <= range.last) return length;
  }
  return 0;
}

std::string folded(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    if (const std::size_t skip = ignorable_length(name); skip != 0) {
      name.remove_prefix(skip);
      continue;
    }
    out += lower(name[0]);
    name.remove_prefix(1);
  }
  // NTFS: what follows a colon names a stream; trailing dots and spaces vanish.
  if (const std::size_t colon = out.find(':'); colon != std::string::npos) out.resize(colon);
  while (!out.empty() && (out.back() == '.' || out.back() == ' ')) out.pop_back();
  return out;
}

}  // namespace

bool folds_to(std::string_view name, std::string_view wanted) {
  return folded(name) == wanted;
}

std::string folded_path(std::string_view path) {
  std::string out;
  while (true) {
    const std::size_t slash = path.find('/');
    out += folded(path.substr(0, slash));
    if (slash == std::string_view::npos) return out;
    out += '/';
    path.remove_prefix(slash + 1);
  }
}

namespace {

bool part_is_dot_gitmodules(std::string_view part) {
  const std::string name = folded(part);
  if (name == ".gitmodules") return true;
  // "GITMOD~1" to "~4", then the first letters with a hash: "GI7EBA~1", "GI7EB~12", …
  const std::size_t tilde = name.find('~');
  if (tilde == std::string::npos || name.size() > 8) return false;
  const std::string_view digits = std::string_view(name).substr(tilde + 1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos ||
      digits[0] == '0') {
    return false;
  }
  const std::string_view head = std::string_view(name).substr(0, tilde);
  if (head == "gitmod") return digits.size() == 1 && digits[0] <= '4';
  return name.size() == 8 && std::string_view("gi7eba").starts_with(head);
}

}  // namespace

bool is_dot_gitmodules(std::string_view component) {
  while (true) {
    const std::size_t backslash = component.find('\\');
    if (part_is_dot_gitmodules(component.substr(0, backslash))) return true;
    if (backslash == std::string_view::npos) return false;
    component.remove_prefix(backslash + 1);
  }
}

bool is_dot_git(std::string_view component) {
  // A backslash separates components where NTFS rules hold.
  while (true) {
    const std::size_t backslash = component.find('\\');
    const std::string part = folded(component.substr(0, backslash));
    if (part == ".git" || part == "git~1") return true;
    if (backslash == std::string_view::npos) return false;
    component.remove_prefix(backslash + 1);
  }
}

std::optional<std::string_view> dot_git_prefix(std::string_view path) {
  std::size_t begin = 0;
  while (begin <= path.size()) {
    std::size_t end = path.find('/', begin);
    if (end == std::string_view::npos) end = path.size();
    if (is_dot_git(path.substr(begin, end - begin))) return path.substr(0, end);
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace cofferdam::orchestrator::changes
