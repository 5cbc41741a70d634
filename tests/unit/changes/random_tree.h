// Random trees and edits, small enough that paths collide. Deterministic by seed.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/fakes/layer_builder.h"
#include "tests/fakes/tree.h"

namespace cofferdam::fakes {

class Dice final {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  unsigned below(unsigned n) { return static_cast<unsigned>(engine_() % n); }
  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[below(static_cast<unsigned>(choices.size()))];
  }

 private:
  std::mt19937 engine_;
};

inline std::string random_content(Dice& dice) {
  switch (dice.below(6)) {
    case 0:
      return {};
    case 1:
      return "one\r\ntwo\r\n";
    case 2:
      return "no newline at the end";
    case 3: {
      std::string bytes;
      for (unsigned i = dice.below(300); i > 0; --i) bytes += static_cast<char>(dice.below(256));
      return bytes;
    }
    default: {
      std::string text;
      for (unsigned i = dice.below(12); i > 0; --i)
        text += "line " + std::to_string(dice.below(4)) + "\n";
      return text;
    }
  }
}

inline Node random_leaf(Dice& dice) {
  if (dice.below(5) == 0) return link(dice.one_of<std::string>({"a", "x/y", "b c"}));
  return file(random_content(dice), dice.one_of<std::uint32_t>({0644, 0755, 0644, 0600}));
}

// `names` are single components. Directories get `directory_modes`.
inline Tree random_tree(Dice& dice, const std::vector<std::string>& names,
                        const std::vector<std::uint32_t>& directory_modes) {
  Tree tree;
  std::vector<std::string> directories = {""};
  for (unsigned i = dice.below(14); i > 0; --i) {
    const std::string& above = dice.one_of(directories);
    const std::string path = (above.empty() ? "" : above + "/") + dice.one_of(names);
    if (tree.contains(path)) continue;
    if (dice.below(3) == 0 && directories.size() < 8) {
      tree[path] = directory(dice.one_of(directory_modes));
      directories.push_back(path);
    } else {
      tree[path] = random_leaf(dice);
    }
  }
  return tree;
}

inline std::vector<std::string> paths_of(const Tree& tree) {
  std::vector<std::string> paths;
  for (const auto& [path, node] : tree) paths.push_back(path);
  return paths;
}

// git does not know empty directories, and cannot put a file in the place of one.
inline Tree without_empty_directories(Tree tree) {
  for (bool again = true; again;) {
    again = false;
    for (const auto& [path, node] : Tree(tree)) {
      if (node.kind != NodeKind::kDirectory || subtree(tree, path).size() > 1) continue;
      tree.erase(path);
      again = true;
    }
  }
  return tree;
}

// One random act of the sandbox.
inline void random_act(Dice& dice, LayerBuilder& layer, const std::vector<std::string>& names,
                       const std::vector<std::uint32_t>& directory_modes) {
  const Tree& tree = layer.theirs();
  std::vector<std::string> directories = {""};
  for (const auto& [path, node] : tree) {
    if (node.kind == NodeKind::kDirectory) directories.push_back(path);
  }
  const std::string& above = dice.one_of(directories);
  const std::string path = (above.empty() ? "" : above + "/") + dice.one_of(names);
  const auto found = tree.find(path);
  const bool is_directory = found != tree.end() && found->second.kind == NodeKind::kDirectory;
  switch (dice.below(7)) {
    case 0:
    case 1:
      if (!is_directory) layer.put(path, random_leaf(dice));
      break;
    case 2:
      if (found == tree.end()) layer.put(path, directory(dice.one_of(directory_modes)));
      break;
    case 3:
      if (found != tree.end()) layer.remove(path);
      break;
    case 4:
      // A file in the place of whatever was there, or a directory.
      if (found != tree.end()) {
        layer.remove(path);
        layer.put(path, dice.below(2) == 0 ? random_leaf(dice) : directory());
      }
      break;
    case 5:
      if (found != tree.end() && found->second.kind != NodeKind::kSymlink) {
        layer.chmod(path, is_directory ? dice.one_of(directory_modes) : 0755);
      }
      break;
    default: {
      if (found == tree.end()) break;
      const std::string to = dice.one_of(names);
      if (!tree.contains(to) && !to.starts_with(path + "/") && to != path) layer.rename(path, to);
    }
  }
}

}  // namespace cofferdam::fakes
