#include "common/policy/idna.h"

#include <idn2.h>

#include <algorithm>
#include <memory>

namespace cofferdam::policy {
namespace {

// A U-label is never longer than its A-label, which has 63 bytes, by more than UTF-8's four bytes
// for each of at most 59 characters.
constexpr std::size_t kMaxULabel = 252;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char fold(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

Result<std::string> a_label(std::string_view label) {
  if (label.size() > kMaxULabel || label.find('\0') != std::string_view::npos) {
    return Error("not an internationalized label");
  }
  std::string folded(label);
  std::transform(folded.begin(), folded.end(), folded.begin(), fold);
  std::uint8_t* made = nullptr;
  const int code = ::idn2_register_u8(reinterpret_cast<const std::uint8_t*>(folded.c_str()),
                                      nullptr, &made, IDN2_NO_TR46);
  const std::unique_ptr<std::uint8_t, void (*)(void*)> owner(made, ::idn2_free);
  if (code != IDN2_OK || made == nullptr) {
    return Error("the label '" + folded + "' is not valid IDNA2008 (" + ::idn2_strerror(code) +
                 "); write it in lower case, or the name in its xn-- form");
  }
  return std::string(reinterpret_cast<const char*>(made));
}

}  // namespace

Result<std::string> to_a_labels(std::string_view text) {
  std::string name;
  while (true) {
    const auto dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    if (is_ascii(label)) {
      name += label;
    } else {
      TRY_ASSIGN(const std::string converted, a_label(label));
      name += converted;
    }
    if (dot == std::string_view::npos) return name;
    name += '.';
    text.remove_prefix(dot + 1);
  }
}

}  // namespace cofferdam::policy
