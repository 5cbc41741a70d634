// Random bases, sandboxes and users against an independent model.
#include <gtest/gtest.h>

#include "orchestrator/changes/undo.h"
#include "tests/unit/changes/merge_case.h"

namespace cofferdam::orchestrator::changes {
namespace {

TEST(MergeProperty, AgreesWithAModelThatOverlaysTrees) {
  int merged = 0;
  int refused = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
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
    if (!report.written) continue;
    // Undo gives back the exact tree, and the changes are there to be merged again.
    const auto undone = undo_merge(c.layer->record());
    ASSERT_TRUE(undone.ok() && undone->exit_status() == 0) << describe(*undone);
    ASSERT_EQ(c.bench->everything(), everything)
        << fakes::difference(c.bench->everything(), everything);
    ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
    ASSERT_EQ(c.bench->ours(), *expected);
  }
  // Both sides of the property were met.
  EXPECT_GT(merged, 40);
  EXPECT_GT(refused, 20);
}

TEST(MergeProperty, EveryDifferenceIsAChangeAndEveryChangeHasAnOutcome) {
  for (unsigned seed = 2000; seed < 2100; ++seed) {
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

// Names that never come home, names that the user ignores, and plain ones, all mixed.
TEST(MergeProperty, NoChangeIsInNeitherOfTheLists) {
  const std::vector<std::string> names = {"a", "b", ".git", ".env", "build", "GIT~1", "x"};
  unsigned left_out = 0;
  for (unsigned seed = 9000; seed < 9120; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    Tree base = fakes::random_tree(dice, {"a", "b", "x", "build"}, kModes);
    // A repository of the user's, whose rules ignore `build`.
    const Workbench bench(base);
    os::SpawnOptions init;
    init.argv = {"/usr/bin/git", "init", "-q", bench.workspace().string()};
    ASSERT_TRUE(os::run_command(init, std::chrono::seconds(60)).ok());
    ASSERT_TRUE(os::write_file_atomic(bench.workspace() / ".git/info/exclude", "build\n").ok());
    LayerBuilder layer(bench.workspace());
    layer.set_rules(Json::parse(R"([{"id":"h","action":"hide","pattern":".env"}])"));
    for (unsigned i = 2 + dice.below(12); i > 0; --i) random_act(dice, layer, names, kModes);
    const Tree surroundings = fakes::read_tree(bench.workspace() / ".git");

    const ChangeSet set = changes_of(layer);
    const auto covers = [&](const auto& rows, const std::string& path) {
      return std::any_of(rows.begin(), rows.end(),
                         [&](const auto& row) { return is_selected(path, {row.path}); });
    };
    const Tree before = fakes::read_tree(bench.workspace());
    for (const Tree* tree : {&before, &layer.theirs()}) {
      for (const auto& object : *tree) {
        const std::string& path =
            object.first;  // Clang 14 takes no structured binding into a lambda
        if (path == ".git" || path.starts_with(".git/")) continue;
        if (equal(at(before, path), at(layer.theirs(), path))) continue;
        const bool changed = std::any_of(set.changes.begin(), set.changes.end(),
                                         [&](const Change& c) { return c.path == path; });
        const bool listed = covers(set.omissions, path) || covers(set.ignored, path);
        left_out += listed ? 1 : 0;
        ASSERT_TRUE(changed != listed) << path << "\n" << listing(set);
      }
    }
    (void)merge_of(layer);
    ASSERT_EQ(fakes::read_tree(bench.workspace() / ".git"), surroundings);
    ASSERT_EQ(*os::read_file(bench.beside()), "not to be touched");
    for (const auto& [path, node] : fakes::read_tree(bench.workspace())) {
      const bool hidden =
          path.find(".env") != std::string::npos || path.find("GIT~1") != std::string::npos;
      ASSERT_FALSE(hidden) << path;
    }
  }
  EXPECT_GT(left_out, 30U);
}

TEST(MergeProperty, FailingAtAnyActLeavesItBeforeOrAfterAsItSays) {
  int walked = 0;
  for (unsigned seed = 5000; seed < 5400 && walked < 8; ++seed) {
    SCOPED_TRACE(seed);
    int acts = 0;
    Tree after;
    {
      const Case c = make_case(seed);
      if (!model(c.base, c.layer->theirs(), c.ours).has_value()) continue;
      MergeOptions count;
      count.before_act = [&](std::string_view, std::string_view) -> Status {
        ++acts;
        return {};
      };
      ASSERT_EQ(merge_of(*c.layer, count).exit_status(), 0);
      after = c.bench->everything();
    }
    if (acts == 0) continue;
    ++walked;
    for (int failing = 0; failing < acts; ++failing) {
      SCOPED_TRACE(failing);
      const Case c = make_case(seed);
      const Tree before = c.bench->everything();
      int now = 0;
      std::string failed;
      MergeOptions options;
      options.objects_in_workspace = seed % 2 == 0;
      options.before_act = [&](std::string_view act, std::string_view) -> Status {
        if (now++ != failing) return {};
        failed = act;
        return Error("injected", ENOSPC);
      };
      const auto report = merge_sandbox(c.layer->record(), options);
      if (report.ok() && report->written) {
        // Only records were missing, and that was said.
        ASSERT_FALSE(report->warning.empty()) << failed;
      } else {
        ASSERT_TRUE(!report.ok() || report->exit_status() == 125) << failed;
        ASSERT_EQ(c.bench->everything(), before)
            << failed << "\n"
            << fakes::difference(c.bench->everything(), before);
      }
      // Nothing was lost by the failure.
      ASSERT_EQ(merge_of(*c.layer).exit_status(), 0) << failed;
      ASSERT_EQ(c.bench->everything(), after) << failed << "\n"
                                              << fakes::difference(c.bench->everything(), after);
    }
  }
  EXPECT_EQ(walked, 8);
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
