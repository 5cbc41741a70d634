// Merges and undos that are killed at every act, and what the next command makes of them.
#include "orchestrator/changes/recovery.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "orchestrator/changes/undo.h"
#include "tests/unit/changes/merge_case.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::directory;
using fakes::file;
using fakes::link;

// Acts that `work` is killed before; -1: none, and the number of all acts is returned.
using Work = std::function<void(const BeforeAct&)>;

int count_acts(const Work& work) {
  int acts = 0;
  work([&](std::string_view, std::string_view) -> Status {
    ++acts;
    return {};
  });
  return acts;
}

// True when it came to the act.
bool kill_before_act(int act, const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int now = 0;
    work([&](std::string_view, std::string_view) -> Status {
      if (now++ == act) ::_exit(9);
      return {};
    });
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 9;
}

Work merging(const LayerBuilder& layer, bool outside) {
  return [&layer, outside](const BeforeAct& hook) {
    MergeOptions options;
    options.before_act = hook;
    options.objects_in_workspace = outside;
    (void)merge_sandbox(layer.record(), options).ok();
  };
}
Work undoing(const LayerBuilder& layer, bool outside) {
  return [&layer, outside](const BeforeAct& hook) {
    UndoOptions options;
    options.before_act = hook;
    options.objects_in_workspace = outside;
    (void)undo_merge(layer.record(), options).ok();
  };
}
Work recovering(const LayerBuilder& layer) {
  return [&layer](const BeforeAct& hook) { (void)recover_merge(layer.record(), hook).ok(); };
}

// Every kind of step.
Case rich_case() {
  Case c;
  c.base = {{"a", file("one\n")},
            {"b.sh", file("#!\n", 0755)},
            {"d", directory(0750)},
            {"d/x", file("x")},
            {"d/e", directory()},
            {"d/e/y", file("y")},
            {"l", link("a")},
            {"gone", file("g", 0600)},
            {"was-dir", directory()},
            {"was-dir/in", file("in")},
            {"mode", directory(0755)},
            {"empty", directory(0711)},
            {"t", file("1\n2\n3\n4\n")},
            {"kind", file("file")}};
  c.bench = std::make_unique<Workbench>(c.base);
  c.layer = std::make_unique<LayerBuilder>(c.bench->workspace());
  c.layer->put("a", file("two\n"));
  c.layer->remove("d");
  c.layer->put("l", link("b.sh"));
  c.layer->remove("gone");
  c.layer->remove("empty");
  c.layer->remove("was-dir");
  c.layer->put("was-dir", file("now a file"));
  c.layer->remove("kind");
  c.layer->put("kind", directory(0700));
  c.layer->put("kind/in", file("in"));
  c.layer->chmod("mode", 0711);
  c.layer->put("mode/new", file("n"));
  c.layer->put("n", directory());
  c.layer->put("n/m", directory(0700));
  c.layer->put("n/m/f", file(std::string("\0bin", 4)));
  c.layer->chmod("n/m", 0500);
  c.layer->put("t", file("1\n2\n3\nfour\n"));
  c.ours = c.base;
  c.ours["t"] = file("one\n2\n3\n4\n");
  c.bench->edit("t", c.ours.at("t"));
  return c;
}

Case numbered_case(unsigned number) {
  return number == 0 ? rich_case() : make_case(7000 + number);
}

struct Walk {
  int before = 0;
  int after = 0;

  // After the next command: entirely before or entirely after, and no journal under way.
  void look(const Case& c, const Tree& tree_before, const Tree& tree_after) {
    const auto recovered = recover_merge(c.layer->record());
    ASSERT_TRUE(recovered.ok()) << recovered.error().message();
    ASSERT_TRUE(recovered->ending.stuck.empty());
    ASSERT_FALSE(Journal::has_active(c.layer->record()));
    const Tree now = c.bench->everything();
    if (now == tree_before) {
      ++before;
    } else {
      ++after;
      ASSERT_EQ(now, tree_after) << fakes::difference(now, tree_after);
    }
  }
};

// An ordinary user's scratch directory is on a disk, where every act of a merge waits for it.
unsigned number_of_cases() {
  return ::geteuid() == 0 ? 4 : 1;
}

TEST(Recovery, AMergeKilledAtAnyActIsEntirelyBeforeOrEntirelyAfter) {
  Walk walk;
  for (unsigned number = 0; number < number_of_cases(); ++number) {
    for (const bool outside : {false, true}) {
      SCOPED_TRACE(number * 10 + (outside ? 1 : 0));
      const Case whole = numbered_case(number);
      const Tree before = whole.bench->everything();
      const int acts = count_acts(merging(*whole.layer, outside));
      const Tree after = whole.bench->everything();
      if (after == before) continue;
      for (int act = 0; act < acts; ++act) {
        SCOPED_TRACE(act);
        const Case c = numbered_case(number);
        ASSERT_TRUE(kill_before_act(act, merging(*c.layer, outside)));
        walk.look(c, before, after);
        if (HasFatalFailure()) return;
        // Merged and taken back as if nothing had been: what was settled went along.
        ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
        ASSERT_EQ(c.bench->everything(), after);
        ASSERT_EQ(*count_unmerged_changes(c.layer->record()), 0U);
        const auto undone = undo_merge(c.layer->record());
        ASSERT_TRUE(undone.ok() && undone->exit_status() == 0);
        ASSERT_EQ(c.bench->everything(), before);
      }
    }
  }
  EXPECT_GT(walk.before, 8);
  EXPECT_GT(walk.after, 8);
}

TEST(Recovery, AnUndoKilledAtAnyActIsEntirelyBeforeOrEntirelyAfter) {
  Walk walk;
  for (unsigned number = 0; number < number_of_cases(); ++number) {
    for (const bool outside : {false, true}) {
      SCOPED_TRACE(number * 10 + (outside ? 1 : 0));
      const Case whole = numbered_case(number);
      const Tree before = whole.bench->everything();
      merging(*whole.layer, outside)({});
      const Tree after = whole.bench->everything();
      if (after == before) continue;
      const int acts = count_acts(undoing(*whole.layer, outside));
      ASSERT_EQ(whole.bench->everything(), before);
      for (int act = 0; act < acts; ++act) {
        SCOPED_TRACE(act);
        const Case c = numbered_case(number);
        merging(*c.layer, outside)({});
        ASSERT_TRUE(kill_before_act(act, undoing(*c.layer, outside)));
        walk.look(c, before, after);
        if (HasFatalFailure()) return;
        if (c.bench->everything() == after) {
          const auto undone = undo_merge(c.layer->record());
          ASSERT_TRUE(undone.ok() && undone->exit_status() == 0);
        }
        ASSERT_EQ(c.bench->everything(), before);
        ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
        ASSERT_EQ(c.bench->everything(), after);
      }
    }
  }
  EXPECT_GT(walk.before, 8);
  EXPECT_GT(walk.after, 8);
}

TEST(Recovery, ARecoveryKilledAtAnyActIsRecoveredFrom) {
  Walk walk;
  for (const bool outside : {false, true}) {
    const Case whole = rich_case();
    const Tree before = whole.bench->everything();
    const int acts = count_acts(merging(*whole.layer, outside));
    const Tree after = whole.bench->everything();
    for (int act = 0; act < acts; act += ::geteuid() == 0 ? 19 : 60) {
      for (int again = 0;; ++again) {
        SCOPED_TRACE(act * 1000 + again);
        const Case c = rich_case();
        ASSERT_TRUE(kill_before_act(act, merging(*c.layer, outside)));
        if (!kill_before_act(again, recovering(*c.layer))) break;
        walk.look(c, before, after);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(walk.before + walk.after, 10);
}

TEST(Recovery, WhereTheUserEditedMeanwhileItIsTakenBackAndTheEditStays) {
  const Case whole = rich_case();
  const Tree before = whole.bench->everything();
  const int acts = count_acts(merging(*whole.layer, false));
  int taken_back = 0;
  for (int act = 0; act < acts; ++act) {
    SCOPED_TRACE(act);
    const Case c = rich_case();
    ASSERT_TRUE(kill_before_act(act, merging(*c.layer, false)));
    if (c.bench->ours().at("a").content != "one\n") break;  // merged already
    c.bench->edit("a", file("edited after the kill\n"));
    const auto recovered = recover_merge(c.layer->record());
    ASSERT_TRUE(recovered.ok());
    Tree expected = before;
    expected["workspace/a"] = file("edited after the kill\n");
    ASSERT_EQ(c.bench->everything(), expected)
        << fakes::difference(c.bench->everything(), expected);
    if (recovered->what == Recovery::What::kTakenBack) ++taken_back;
  }
  EXPECT_GT(taken_back, 3);
}

TEST(Recovery, NothingInAWorkspaceIsTakenForAJournal) {
  const Workbench bench({{".cofferdam-merge-0011223344556677", directory()},
                         {".cofferdam-merge-0011223344556677/0", file("planted")},
                         {".cofferdam-merge-0011223344556677/plan.json", file("{}")},
                         {"a", file("one")}});
  LayerBuilder layer(bench.workspace());
  layer.put("a", file("two"));
  Tree expected = bench.ours();
  expected["a"] = file("two");
  EXPECT_EQ(merge_of(layer).exit_status(), 0);
  EXPECT_EQ(bench.ours(), expected);
}

TEST(Undo, IsRefusedWithAListWhereTheUserChangedWhatTheMergeBrought) {
  const struct {
    const char* name;
    std::function<void(const Workbench&)> edit;
    const char* path;
  } cases[] = {
      {"content", [](const Workbench& b) { b.edit("a", file("mine")); }, "a"},
      {"mode", [](const Workbench& b) { b.edit("a", file("two\n", 0755)); }, "a"},
      {"gone", [](const Workbench& b) { b.erase("a"); }, "a"},
      {"a name again", [](const Workbench& b) { b.edit("gone", file("mine")); }, "gone"},
      {"a file in a new directory", [](const Workbench& b) { b.edit("n/mine", file("m")); },
       "n/mine"},
      {"a new directory moved away",
       [](const Workbench& b) {
         std::filesystem::rename(b.workspace() / "n", b.workspace() / "elsewhere");
       },
       "n"},
      {"a link's text", [](const Workbench& b) { b.edit("l", link("elsewhere")); }, "l"},
      {"a directory's mode",
       [](const Workbench& b) {
         std::filesystem::permissions(b.workspace() / "mode", std::filesystem::perms::owner_all);
       },
       "mode"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Case k = rich_case();
    ASSERT_EQ(merge_of(*k.layer).exit_status(), 0);
    c.edit(*k.bench);
    const Tree edited = k.bench->everything();
    const auto report = undo_merge(k.layer->record());
    ASSERT_TRUE(report.ok()) << report.error().message();
    EXPECT_EQ(report->exit_status(), 1);
    ASSERT_FALSE(report->changed.empty());
    const bool listed = std::any_of(report->changed.begin(), report->changed.end(),
                                    [&](const StuckStep& step) { return step.path == c.path; });
    EXPECT_TRUE(listed) << describe(*report);
    EXPECT_EQ(k.bench->everything(), edited);
  }
}

TEST(Undo, TakesMergesBackOneByOneNewestFirst) {
  const Case c = rich_case();
  const Tree start = c.bench->everything();
  MergeOptions options;
  options.paths = {"a"};
  ASSERT_EQ(merge_of(*c.layer, options).exit_status(), 0);
  const Tree first = c.bench->everything();
  ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
  ASSERT_EQ(undo_merge(c.layer->record())->exit_status(), 0);
  EXPECT_EQ(c.bench->everything(), first);
  ASSERT_EQ(undo_merge(c.layer->record())->exit_status(), 0);
  EXPECT_EQ(c.bench->everything(), start);
  EXPECT_TRUE(undo_merge(c.layer->record())->nothing);
  ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
}

TEST(Undo, AnEditInTheVeryMomentIsNotLostAndTheMergeStays) {
  for (const bool outside : {false, true}) {
    const Case c = rich_case();
    ASSERT_EQ(merge_of(*c.layer).exit_status(), 0);
    const Tree after = c.bench->everything();
    UndoOptions options;
    options.objects_in_workspace = outside;
    options.before_act = [&](std::string_view act, std::string_view path) -> Status {
      if (act == "exchange back" && path == "a") c.bench->edit("a", file("mine, in time"));
      return {};
    };
    const auto report = undo_merge(c.layer->record(), options);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->exit_status(), 125);
    Tree expected = after;
    expected["workspace/a"] = file("mine, in time");
    EXPECT_EQ(c.bench->everything(), expected)
        << fakes::difference(c.bench->everything(), expected);
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
