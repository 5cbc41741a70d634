#include "common/policy/public_suffix.h"

#include <libpsl.h>

#include <set>
#include <string>

namespace cofferdam::policy {
namespace {

// The text of policies/public_suffixes.txt, put here by the build.
constexpr std::string_view kListText =
#include "public_suffix_list.inc"
    ;

std::string_view next_line(std::string_view& rest) {
  const auto end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return line;
}

const std::set<std::string_view>& suffixes() {
  static const std::set<std::string_view> set = [] {
    std::set<std::string_view> made;
    for (std::string_view rest = kListText; !rest.empty();) {
      const std::string_view line = next_line(rest);
      if (!line.empty() && line.front() != '#') made.insert(line);
    }
    return made;
  }();
  return set;
}

}  // namespace

bool is_public_suffix(const HostName& name) {
  if (name.label_count() == 1 || suffixes().contains(name.text())) return true;
  // The library's own list, as the distribution keeps it; without one, ours alone decides.
  const psl_ctx_t* list = ::psl_builtin();
  if (list != nullptr && ::psl_is_public_suffix(list, name.text().c_str()) == 1) return true;
  // "*.ck": every name directly below ck.
  const auto dot = name.text().find('.');
  return suffixes().contains("*" + name.text().substr(dot));
}

std::string_view public_suffix_date() {
  constexpr std::string_view kKey = "# date: ";
  const auto at = kListText.find(kKey);
  return at == std::string_view::npos ? "" : kListText.substr(at + kKey.size(), 10);
}

}  // namespace cofferdam::policy
