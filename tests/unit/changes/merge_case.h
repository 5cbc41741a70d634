// Random merges, and a model of what each must come to that knows nothing of layers: it overlays
// trees, and asks stock git where both sides changed a text.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/os/process.h"
#include "tests/unit/changes/random_tree.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {

using fakes::Dice;
using fakes::LayerBuilder;
using fakes::Node;
using fakes::Tree;

inline const std::vector<std::string> kNames = {"a", "b", "b c", "x", "y", "zz"};
inline const std::vector<std::uint32_t> kModes = {0755, 0700};

inline const Node* at(const Tree& tree, const std::string& path) {
  const auto found = tree.find(path);
  return found == tree.end() ? nullptr : &found->second;
}
inline bool equal(const Node* a, const Node* b) {
  return (a == nullptr && b == nullptr) || (a != nullptr && b != nullptr && *a == *b);
}

inline bool is_text(const Node* node) {
  return node != nullptr && node->kind == fakes::NodeKind::kFile &&
         node->content.substr(0, 8000).find('\0') == std::string::npos;
}

// git merge-file on three files; nothing where it leaves markers.
inline std::optional<std::string> git_merge(const Node& base, const Node& theirs,
                                            const Node& ours) {
  const auto top = std::move(*os::TempDir::create(fakes::scratch_directory(), "cofferdam-three-"));
  fakes::write_node(top.path(), "base", fakes::file(base.content));
  fakes::write_node(top.path(), "theirs", fakes::file(theirs.content));
  fakes::write_node(top.path(), "ours", fakes::file(ours.content));
  os::SpawnOptions options;
  options.argv = {"/usr/bin/git", "merge-file", "-p", "ours", "base", "theirs"};
  options.directory = top.path().string();
  const auto done = os::run_command(options, std::chrono::seconds(60));
  EXPECT_TRUE(done.ok());
  if (!done.ok() || done->status.signalled || done->status.code != 0) return std::nullopt;
  return done->out;
}

// What a merge must make of the workspace: nothing, where it must refuse.
inline std::optional<Tree> model(const Tree& base, const Tree& theirs, const Tree& ours) {
  std::set<std::string> paths;
  for (const Tree* tree : {&base, &theirs}) {
    for (const auto& [path, node] : *tree) paths.insert(path);
  }
  Tree result = ours;
  for (const std::string& path : paths) {
    const Node* b = at(base, path);
    const Node* t = at(theirs, path);
    const Node* o = at(ours, path);
    if (equal(b, t)) continue;
    if (equal(o, t)) continue;
    if (!equal(o, b)) {
      if (!is_text(b) || !is_text(t) || !is_text(o) || t->mode != o->mode) return std::nullopt;
      const auto merged = git_merge(*b, *t, *o);
      if (!merged.has_value()) return std::nullopt;
      result[path].content = *merged;
      continue;
    }
    if (t == nullptr) {
      result.erase(path);
    } else {
      result[path] = *t;
    }
  }
  if (!fakes::is_well_formed(result)) return std::nullopt;
  return result;
}

// The user's edits of a tree, as a value.
inline Tree edited(Dice& dice, Tree tree, const Tree& theirs) {
  for (unsigned i = dice.below(4); i > 0; --i) {
    const auto paths = fakes::paths_of(tree);
    const std::string name = dice.one_of(kNames);
    switch (dice.below(4)) {
      case 0:
        if (!tree.contains(name)) tree[name] = fakes::random_leaf(dice);
        break;
      case 1:
        if (!paths.empty()) {
          const std::string path = dice.one_of(paths);
          for (const auto& [gone, node] : fakes::subtree(tree, path)) tree.erase(gone);
        }
        break;
      case 2:
        if (!paths.empty()) {
          const std::string path = dice.one_of(paths);
          if (tree[path].kind == fakes::NodeKind::kDirectory) {
            if (!tree.contains(path + "/" + name))
              tree[path + "/" + name] = fakes::random_leaf(dice);
          } else {
            tree[path] = fakes::random_leaf(dice);
          }
        }
        break;
      default:
        // The same change as the sandbox made.
        if (!theirs.empty()) {
          const std::string path = dice.one_of(fakes::paths_of(theirs));
          Tree with = tree;
          for (const auto& [gone, node] : fakes::subtree(with, path)) with.erase(gone);
          with[path] = theirs.at(path);
          if (fakes::is_well_formed(with)) tree = with;
        }
    }
  }
  return tree;
}

struct Case {
  Tree base;
  Tree ours;
  std::unique_ptr<Workbench> bench;
  std::unique_ptr<LayerBuilder> layer;
};

inline Case make_case(unsigned seed) {
  Dice dice(seed);
  Case c;
  c.base = fakes::random_tree(dice, kNames, kModes);
  c.bench = std::make_unique<Workbench>(c.base);
  c.layer = std::make_unique<LayerBuilder>(c.bench->workspace());
  c.layer->whiteouts_in_meta = dice.below(2) == 0;
  for (unsigned i = 1 + dice.below(10); i > 0; --i) random_act(dice, *c.layer, kNames, kModes);
  c.ours = edited(dice, c.base, c.layer->theirs());
  for (const auto& [path, node] : c.base) c.bench->erase(path);
  fakes::write_tree(c.bench->workspace(), c.ours);
  return c;
}

}  // namespace cofferdam::orchestrator::changes
