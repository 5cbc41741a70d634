#include "orchestrator/git_index.h"

#include <cstdint>

namespace cofferdam::orchestrator {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kFixed = 62;  // of an entry: stat data, SHA-1, flags
constexpr std::size_t kMaxPath = 65536;

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = (value << 8U) | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

// The offset encoding of version 4: how many bytes of the previous path are dropped.
bool read_offset(std::string_view bytes, std::size_t* at, std::uint64_t* value) {
  *value = 0;
  for (int i = 0; i < 5 && *at < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[(*at)++]);
    if (i > 0) ++*value;
    *value = (*value << 7U) | (byte & 0x7FU);
    if ((byte & 0x80U) == 0) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> parse_git_index(std::string_view bytes) {
  if (bytes.size() < kHeader || !bytes.starts_with("DIRC")) return Error("not a git index");
  const std::uint32_t version = number_at(bytes, 4);
  const std::uint32_t count = number_at(bytes, 8);
  if (version < 2 || version > 4) return Error("a git index of an unknown version");
  std::vector<std::string> paths;
  std::string path;
  std::size_t at = kHeader;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t begin = at;
    if (bytes.size() - at < kFixed) return Error("a git index that is cut short");
    const bool extended = (static_cast<unsigned char>(bytes[at + kFixed - 2]) & 0x40U) != 0;
    at += kFixed + (extended ? 2 : 0);
    if (version == 4) {
      std::uint64_t dropped = 0;
      if (at > bytes.size() || !read_offset(bytes, &at, &dropped) || dropped > path.size()) {
        return Error("a git index with a broken path");
      }
      path.resize(path.size() - dropped);
    } else {
      path.clear();
    }
    const std::size_t end = at > bytes.size() ? std::string_view::npos : bytes.find('\0', at);
    if (end == std::string_view::npos || end - at > kMaxPath || path.size() > kMaxPath) {
      return Error("a git index with a broken path");
    }
    path.append(bytes.substr(at, end - at));
    paths.push_back(path);
    // Versions 2 and 3 pad entries with 1 to 8 NULs to a multiple of 8.
    at = version == 4 ? end + 1 : begin + ((end - begin + 8) & ~std::size_t{7});
    if (at > bytes.size()) return Error("a git index that is cut short");
  }
  return paths;
}

}  // namespace cofferdam::orchestrator
