// Tree: a directory tree as a value, written to disk and read back. For tests; paths are trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>

namespace cofferdam::fakes {

enum class NodeKind : std::uint8_t { kFile, kDirectory, kSymlink, kFifo };

struct Node {
  NodeKind kind = NodeKind::kFile;
  std::uint32_t mode = 0644;  // 0 for links
  std::string content;        // of a file, or a link's text
  bool operator==(const Node&) const = default;
};

inline Node file(std::string content, std::uint32_t mode = 0644) {
  return {NodeKind::kFile, mode, std::move(content)};
}
inline Node directory(std::uint32_t mode = 0755) {
  return {NodeKind::kDirectory, mode, {}};
}
inline Node link(std::string text) {
  return {NodeKind::kSymlink, 0, std::move(text)};
}

// Where tests make their trees: in memory where that holds all that a layer needs.
const char* scratch_directory();

// By path relative to the root; the root is no entry.
using Tree = std::map<std::string, Node>;

void write_node(const std::filesystem::path& root, const std::string& path, const Node& node);
void write_tree(const std::filesystem::path& root, const Tree& tree);
Tree read_tree(const std::filesystem::path& root);

// Whether every entry's parent is a directory of the tree, or the root.
bool is_well_formed(const Tree& tree);
std::string parent(const std::string& path);
// The entries at and below `path`.
Tree subtree(const Tree& tree, const std::string& path);

std::ostream& operator<<(std::ostream& out, const Node& node);
// The first differences, for a failed expectation.
std::string difference(const Tree& a, const Tree& b);

}  // namespace cofferdam::fakes
