// Random bases, sandboxes and users against a model that knows nothing of layers: it overlays
// trees.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/changes/random_tree.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::Dice;
using fakes::LayerBuilder;
using fakes::Node;
using fakes::Tree;

const std::vector<std::string> kNames = {"a", "b", "b c", "x", "y", "zz"};
const std::vector<std::uint32_t> kModes = {0755, 0700};

const Node* at(const Tree& tree, const std::string& path) {
  const auto found = tree.find(path);
  return found == tree.end() ? nullptr : &found->second;
}
bool equal(const Node* a, const Node* b) {
  return (a == nullptr && b == nullptr) || (a != nullptr && b != nullptr && *a == *b);
}

// What a merge must make of the workspace: nothing, where it must refuse.
std::optional<Tree> model(const Tree& base, const Tree& theirs, const Tree& ours) {
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
    if (!equal(o, b)) return std::nullopt;
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
Tree edited(Dice& dice, Tree tree, const Tree& theirs) {
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

Case make_case(unsigned seed) {
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

TEST(MergeProperty, AgreesWithAModelThatOverlaysTrees) {
  int merged = 0;
  int refused = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = make_case(seed);
    const Tree everything = c.bench->everything();
    const auto expected = model(c.base, c.layer->theirs(), c.ours);
    const MergeReport report = merge_of(*c.layer);
    if (!expected.has_value()) {
      ++refused;
      ASSERT_EQ(report.exit_status(), 1) << describe(report, false);
      ASSERT_EQ(c.bench->everything(), everything)
          << fakes::difference(c.bench->everything(), everything);
      continue;
    }
    ++merged;
    ASSERT_EQ(report.exit_status(), 0) << describe(report, false);
    const Tree now = c.bench->ours();
    ASSERT_EQ(now, *expected) << fakes::difference(now, *expected);
    ASSERT_EQ(*os::read_file(c.bench->beside()), "not to be touched");
    ASSERT_EQ(*count_unmerged_changes(c.layer->record()), 0U);
    ASSERT_FALSE(merge_of(*c.layer).written);
  }
  // Both sides of the property were met.
  EXPECT_GT(merged, 80);
  EXPECT_GT(refused, 40);
}

TEST(MergeProperty, EveryDifferenceIsAChangeAndEveryChangeHasAnOutcome) {
  for (unsigned seed = 2000; seed < 2150; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = make_case(seed);
    std::set<std::string> expected;
    for (const Tree* tree : {&c.base, &c.layer->theirs()}) {
      for (const auto& [path, node] : *tree) {
        if (!equal(at(c.base, path), at(c.layer->theirs(), path))) expected.insert(path);
      }
    }
    const ChangeSet set = changes_of(*c.layer);
    std::set<std::string> found;
    for (const Change& change : set.changes) found.insert(change.path);
    ASSERT_EQ(found, expected);
    MergeOptions options;
    options.dry_run = true;
    const MergeReport report = merge_of(*c.layer, options);
    ASSERT_EQ(report.items.size(), expected.size());
    for (const MergeItem& item : report.items) {
      ASSERT_NE(item.outcome, Outcome::kNotSelected);
      ASSERT_TRUE(item.outcome != Outcome::kConflict || !item.why.empty());
    }
  }
}

TEST(MergeProperty, FailingAtAnyActLeavesEverythingAsItWas) {
  int walked = 0;
  for (unsigned seed = 5000; seed < 5400 && walked < 20; ++seed) {
    SCOPED_TRACE(seed);
    int acts = 0;
    {
      const Case c = make_case(seed);
      if (!model(c.base, c.layer->theirs(), c.ours).has_value()) continue;
      MergeOptions count;
      count.before_act = [&](std::string_view, std::string_view) -> Status {
        ++acts;
        return {};
      };
      ASSERT_EQ(merge_of(*c.layer, count).exit_status(), 0);
    }
    if (acts == 0) continue;
    ++walked;
    const Case c = make_case(seed);
    const Tree before = c.bench->everything();
    for (int failing = 0; failing < acts; ++failing) {
      SCOPED_TRACE(failing);
      int now = 0;
      MergeOptions options;
      options.before_act = [&](std::string_view, std::string_view) -> Status {
        return now++ == failing ? Status(Error("injected", ENOSPC)) : Status();
      };
      const MergeReport report = merge_of(*c.layer, options);
      ASSERT_EQ(report.exit_status(), 125);
      ASSERT_TRUE(report.undone) << report.failure;
      ASSERT_EQ(c.bench->everything(), before) << fakes::difference(c.bench->everything(), before);
    }
    // Nothing was lost by all these failures.
    ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
  }
  EXPECT_EQ(walked, 20);
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
