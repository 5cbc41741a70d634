#include "orchestrator/reader/refs.h"

#include <algorithm>

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::string_view kHeads = "refs/heads/";
constexpr std::size_t kMaxName = 1024;
constexpr std::size_t kMaxComponent = 200;

bool is_component(std::string_view part) {
  if (part.empty() || part.size() > kMaxComponent || part.starts_with('.')) return false;
  if (part.ends_with(".lock") || part.ends_with('.')) return false;
  if (part.find("..") != std::string_view::npos || part.find("@{") != std::string_view::npos) {
    return false;
  }
  return std::none_of(part.begin(), part.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view kForbidden = " ~^:?*[\\";
    return byte < 0x20 || byte == 0x7f || kForbidden.find(c) != std::string_view::npos;
  });
}

std::string_view take_line(std::string_view& content) {
  const std::size_t end = std::min(content.find('\n'), content.size());
  const std::string_view line = content.substr(0, end);
  content.remove_prefix(std::min(end + 1, content.size()));
  return line;
}

}  // namespace

bool is_branch_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name == "HEAD" || name == "@") return false;
  if (name.starts_with('-')) return false;
  while (true) {
    const std::size_t slash = name.find('/');
    if (!is_component(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

Result<RefValue> parse_ref_file(std::string_view content) {
  while (content.ends_with('\n') || content.ends_with(' ')) content.remove_suffix(1);
  RefValue value;
  value.id = id_from_hex(content);
  if (value.id) return value;
  constexpr std::string_view kSymbolic = "ref: ";
  if (!content.starts_with(kSymbolic)) return Error("neither an object's name nor a reference");
  content.remove_prefix(kSymbolic.size());
  if (!content.starts_with(kHeads) || !is_branch_name(content.substr(kHeads.size()))) {
    return Error("it stands for no branch");
  }
  value.branch = content.substr(kHeads.size());
  return value;
}

Result<PackedRefs> parse_packed_refs(std::string_view content) {
  PackedRefs refs;
  while (!content.empty()) {
    const std::string_view line = take_line(content);
    // "^<id>" tells what the annotated tag before it leads to.
    if (line.empty() || line[0] == '#' || line[0] == '^') continue;
    const auto id = id_from_hex(line.substr(0, 2 * ObjectId::kSize));
    if (!id || line.size() < 2 * ObjectId::kSize + 2 || line[2 * ObjectId::kSize] != ' ') {
      return Error("packed-refs: a broken line");
    }
    const std::string_view name = line.substr(2 * ObjectId::kSize + 1);
    if (!name.starts_with(kHeads)) continue;
    const std::string_view branch = name.substr(kHeads.size());
    if (is_branch_name(branch)) {
      refs.branches.push_back({std::string(branch), *id});
    } else {
      refs.refused.emplace_back(branch);
    }
  }
  return refs;
}

}  // namespace cofferdam::orchestrator::reader
