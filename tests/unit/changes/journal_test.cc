// What a merge took out of the workspace and what somebody else made there meanwhile: neither is
// lost by a kill, a full disk, or a directory that is not the one that was written into.
#include "orchestrator/changes/journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "common/os/file_lock.h"
#include "orchestrator/changes/recovery.h"
#include "orchestrator/changes/undo.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::directory;
using fakes::file;
using fakes::LayerBuilder;
using fakes::Tree;

Tree base() {
  return {{"a", file("one\n")},   {"b", file("two\n")},      {"d", directory(0750)},
          {"d/x", file("x")},     {"gone", file("g", 0600)}, {"kind", directory()},
          {"kind/in", file("in")}};
}

// Changes `a`, removes `d` and `gone`, makes `new` and a file of the directory `kind`.
struct Bench {
  Bench() : bench(base()), layer(bench.workspace()) {
    layer.put("a", file("theirs\n"));
    layer.remove("d");
    layer.remove("gone");
    layer.remove("kind");
    layer.put("kind", file("now a file\n"));
    layer.put("new", file("new\n"));
  }
  Tree merged() const { return layer.theirs(); }
  Workbench bench;
  LayerBuilder layer;
};

[[noreturn]] void die() {
  ::_exit(9);
}

// Runs `work` in a process of its own, which ends by die().
void killed(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 9) << "it never came to that";
}

MergeOptions hooked(BeforeAct hook, bool outside = false) {
  MergeOptions options;
  options.before_act = std::move(hook);
  options.objects_in_workspace = outside;
  return options;
}

TEST(Journal, AnEditInTheMomentOfAStepSurvivesAKillBeforeItIsVerified) {
  for (const bool outside : {false, true}) {
    for (const char* path : {"a", "gone", "d/x"}) {
      SCOPED_TRACE(path);
      const Bench b;
      killed([&] {
        (void)merge_sandbox(b.layer.record(),
                            hooked(
                                [&](std::string_view act, std::string_view at) -> Status {
                                  if (at != path) return {};
                                  if (act == "exchange" || act == "remove")
                                    b.bench.edit(path, file("in time\n"));
                                  if (act == "verify") die();
                                  return {};
                                },
                                outside))
            .ok();
      });
      const auto recovered = recover_merge(b.layer.record());
      ASSERT_TRUE(recovered.ok()) << recovered.error().message();
      EXPECT_EQ(recovered->what, Recovery::What::kTakenBack);
      EXPECT_TRUE(recovered->ending.stuck.empty());
      Tree expected = base();
      expected[path] = file("in time\n");
      EXPECT_EQ(b.bench.ours(), expected) << fakes::difference(b.bench.ours(), expected);
    }
  }
}

TEST(Journal, AnEditInTheMomentOfAnUndosStepSurvivesAKillBeforeItIsVerified) {
  const Bench b;
  ASSERT_EQ(merge_of(b.layer).exit_status(), 0);
  killed([&] {
    UndoOptions options;
    options.before_act = [&](std::string_view act, std::string_view at) -> Status {
      if (at != "a") return {};
      if (act == "exchange back") b.bench.edit("a", file("in time\n"));
      if (act == "verify") die();
      return {};
    };
    (void)undo_merge(b.layer.record(), options).ok();
  });
  ASSERT_TRUE(recover_merge(b.layer.record()).ok());
  Tree expected = b.merged();
  expected["a"] = file("in time\n");
  EXPECT_EQ(b.bench.ours(), expected) << fakes::difference(b.bench.ours(), expected);
}

TEST(Journal, WorkAfterAMergeThatWasCutShortAtItsVeryEndIsNoReasonToTakeItBack) {
  const Bench b;
  killed([&] {
    (void)merge_sandbox(b.layer.record(),
                        hooked([&](std::string_view act, std::string_view) -> Status {
                          if (act == "phase done") die();
                          return {};
                        }))
        .ok();
  });
  b.bench.edit("a", file("theirs\nand mine\n"));
  b.bench.erase("new");
  const auto recovered = recover_merge(b.layer.record());
  ASSERT_TRUE(recovered.ok()) << recovered.error().message();
  EXPECT_EQ(recovered->what, Recovery::What::kFinished);
  Tree expected = b.merged();
  expected["a"] = file("theirs\nand mine\n");
  expected.erase("new");
  EXPECT_EQ(b.bench.ours(), expected) << fakes::difference(b.bench.ours(), expected);
}

// A failed merge whose step cannot be taken back: the user wrote over it in that moment.
BeforeAct fails_with_an_edit(const Bench& b,
                             const std::function<void(std::string_view act)>& later) {
  return [&b, later](std::string_view act, std::string_view path) -> Status {
    if (act == "read back" && path == "new") {
      b.bench.edit("a", file("edited right after\n"));
      b.bench.edit("gone", file("made again\n"));
      return Error("injected");
    }
    later(act);
    return {};
  };
}

// The contents below merges/ that hold what the workspace held before.
std::multiset<std::string> kept_contents(const LayerBuilder& layer) {
  std::multiset<std::string> contents;
  const auto kept = Journal::kept(layer.record());
  EXPECT_TRUE(kept.ok());
  for (const auto& top : *kept) {
    for (const auto& [path, node] : fakes::read_tree(top)) contents.insert(node.content);
  }
  return contents;
}

TEST(Journal, WhatCannotBePutBackIsKeptThroughASecondKillAtAnyAct) {
  for (const bool outside : {false, true}) {
    int acts = 0;
    {
      const Bench b;
      bool counting = false;
      (void)merge_of(b.layer, hooked(fails_with_an_edit(b,
                                                        [&](std::string_view act) {
                                                          counting |= act == "phase kept";
                                                          if (counting) ++acts;
                                                        }),
                                     outside));
    }
    ASSERT_GT(acts, 2);
    for (int die_at = 0; die_at < acts; ++die_at) {
      SCOPED_TRACE(die_at * 10 + (outside ? 1 : 0));
      const Bench b;
      killed([&] {
        int now = -1;
        (void)merge_sandbox(b.layer.record(),
                            hooked(fails_with_an_edit(b,
                                                      [&](std::string_view act) {
                                                        if (now >= 0 || act == "phase kept") ++now;
                                                        if (now == die_at) die();
                                                      }),
                                   outside))
            .ok();
      });
      const auto recovered = recover_merge(b.layer.record());
      ASSERT_TRUE(recovered.ok()) << recovered.error().message();
      ASSERT_FALSE(Journal::has_active(b.layer.record()));
      EXPECT_EQ(b.bench.ours().at("a"), file("edited right after\n"));
      EXPECT_EQ(b.bench.ours().at("gone"), file("made again\n"));
      if (recovered->what == Recovery::What::kFinished) continue;  // carried out after all
      // Every version that was there before is in the workspace or kept.
      const auto kept = kept_contents(b.layer);
      EXPECT_EQ(kept.count("one\n"), 1U);
      EXPECT_EQ(kept.count("g"), 1U);
      EXPECT_EQ(b.bench.ours().at("d/x"), file("x"));
    }
  }
}

TEST(Journal, AMergeThatFailedIsNotCarriedOutLaterBecauseTheDiskIsFull) {
  for (const bool outside : {false, true}) {
    const Bench b;
    bool full = false;
    const auto report =
        merge_of(b.layer, hooked(
                              [&](std::string_view act, std::string_view path) -> Status {
                                full |= act == "create" && path == "new";
                                if (full && (act == "create" || act.starts_with("phase"))) {
                                  return Error("no space", ENOSPC);
                                }
                                return {};
                              },
                              outside));
    EXPECT_EQ(report.exit_status(), 125);
    EXPECT_EQ(b.bench.ours(), base()) << fakes::difference(b.bench.ours(), base());
    EXPECT_EQ(recover_merge(b.layer.record())->what, Recovery::What::kNothing);
    EXPECT_EQ(b.bench.ours(), base()) << fakes::difference(b.bench.ours(), base());
    EXPECT_EQ(merge_of(b.layer).exit_status(), 0);
    EXPECT_EQ(b.bench.ours(), b.merged());
  }
}

TEST(Journal, AnotherDirectoryInThePlaceOfTheWorkspaceIsNotWrittenInto) {
  const Bench b;
  killed([&] {
    (void)merge_sandbox(b.layer.record(),
                        hooked([&](std::string_view act, std::string_view path) -> Status {
                          if (act == "create" && path == "new") die();
                          return {};
                        }))
        .ok();
  });
  // Moved away, and a fresh copy of what was there before.
  const auto away = b.bench.root() / "away";
  std::filesystem::rename(b.bench.workspace(), away);
  std::filesystem::create_directory(b.bench.workspace());
  fakes::write_tree(b.bench.workspace(), base());
  const auto refused = recover_merge(b.layer.record());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("another directory"), std::string::npos);
  EXPECT_EQ(b.bench.ours(), base());
  EXPECT_TRUE(Journal::has_active(b.layer.record()));
  std::filesystem::remove_all(b.bench.workspace());
  std::filesystem::rename(away, b.bench.workspace());
  ASSERT_TRUE(recover_merge(b.layer.record()).ok());
  EXPECT_EQ(b.bench.ours(), b.merged()) << fakes::difference(b.bench.ours(), b.merged());
}

TEST(Journal, OneThatWasCutShortIsNeverBegunAnew) {
  const Bench b;
  killed([&] {
    (void)merge_sandbox(b.layer.record(),
                        hooked([&](std::string_view act, std::string_view path) -> Status {
                          if (act == "create" && path == "new") die();
                          return {};
                        }))
        .ok();
  });
  const os::UniqueFd top(::open(b.bench.workspace().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(Journal::begin(b.layer.record(), top.get(), false, {}).ok());
  {
    const auto lock = os::FileLock::try_acquire_directory(top.get());
    ASSERT_TRUE(lock.ok() && lock->has_value());
    EXPECT_FALSE(merge_sandbox(b.layer.record(), {}).ok());
  }
  ASSERT_TRUE(recover_merge(b.layer.record()).ok());
  EXPECT_EQ(b.bench.ours(), b.merged()) << fakes::difference(b.bench.ours(), b.merged());
}

TEST(Undo, GivesBackWhatAWriterPutIntoAFileAfterItWasTakenAway) {
  const Bench b;
  const os::UniqueFd open(
      ::open((b.bench.workspace() / "gone").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  ASSERT_TRUE(open);
  ASSERT_EQ(merge_of(b.layer).exit_status(), 0);
  ASSERT_EQ(::write(open.get(), " late", 5), 5);
  const auto undone = undo_merge(b.layer.record());
  ASSERT_TRUE(undone.ok());
  EXPECT_EQ(undone->exit_status(), 0) << describe(*undone);
  Tree expected = base();
  expected["gone"] = file("g late", 0600);
  EXPECT_EQ(b.bench.ours(), expected) << fakes::difference(b.bench.ours(), expected);
}

TEST(Merge, ADirectoryThatBecomesWritableDoesSoBeforeAnythingInItIsWritten) {
  const Workbench bench({{"ro", directory(0555)}, {"ro/f", file("f")}});
  LayerBuilder layer(bench.workspace());
  layer.chmod("ro", 0755);
  layer.put("ro/new", file("new"));
  layer.remove("ro/f");
  std::vector<std::string> acts;
  ASSERT_EQ(merge_of(layer, hooked([&](std::string_view act, std::string_view path) -> Status {
                       if (act == "chmod" || act == "create" || act == "remove") {
                         acts.push_back(std::string(act) + " " + std::string(path));
                       }
                       return {};
                     }))
                .exit_status(),
            0);
  EXPECT_EQ(acts, (std::vector<std::string>{"chmod ro", "remove ro/f", "create ro/new"}));
  EXPECT_EQ(bench.ours(), layer.theirs());
  EXPECT_EQ(undo_merge(layer.record())->exit_status(), 0);
  EXPECT_EQ(bench.ours().at("ro").mode, 0555U);
}

// overlayfs moves no directory of its lower layer: the workspace of a container's image.
class Overlay {
 public:
  explicit Overlay(const std::filesystem::path& top)
      : work_(std::move(*os::TempDir::create(fakes::scratch_directory(), "cofferdam-overlay-"))),
        top_(top) {
    std::filesystem::create_directory(work_.path() / "upper");
    std::filesystem::create_directory(work_.path() / "work");
    const std::string options = "lowerdir=" + top_.string() +
                                ",upperdir=" + (work_.path() / "upper").string() +
                                ",workdir=" + (work_.path() / "work").string();
    mounted_ = ::mount("overlay", top_.c_str(), "overlay", 0, options.c_str()) == 0;
  }
  ~Overlay() {
    if (mounted_) ::umount2(top_.c_str(), MNT_DETACH);
  }
  Overlay(const Overlay&) = delete;
  Overlay& operator=(const Overlay&) = delete;
  bool mounted() const { return mounted_; }

 private:
  os::TempDir work_;
  std::filesystem::path top_;
  bool mounted_ = false;
};

TEST(Merge, RemovesDirectoriesWhereTheFileSystemMovesNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root mounts";
  for (int die_at = -1;; ++die_at) {
    SCOPED_TRACE(die_at);
    const Bench b;
    const Overlay overlay(b.bench.workspace());
    if (!overlay.mounted()) GTEST_SKIP() << "no overlayfs may be mounted here";
    bool came = die_at < 0;
    const auto merge = [&](const BeforeAct& hook) {
      const auto report = merge_sandbox(b.layer.record(), hooked(hook));
      return report.ok() && report->exit_status() == 0;
    };
    if (die_at < 0) {
      ASSERT_TRUE(merge({}));
    } else {
      const pid_t child = ::fork();
      if (child == 0) {
        int now = 0;
        (void)merge([&](std::string_view, std::string_view path) -> Status {
          if ((path == "d" || path == "kind") && now++ == die_at) die();
          return {};
        });
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      came = WEXITSTATUS(status) == 9;
      ASSERT_TRUE(recover_merge(b.layer.record()).ok());
      if (came && b.bench.ours() == base()) {
        ASSERT_TRUE(merge({}));
      }
    }
    EXPECT_EQ(b.bench.ours(), b.merged()) << fakes::difference(b.bench.ours(), b.merged());
    const auto undone = undo_merge(b.layer.record());
    ASSERT_TRUE(undone.ok()) << undone.error().message();
    EXPECT_EQ(undone->exit_status(), 0) << describe(*undone);
    EXPECT_EQ(b.bench.ours(), base()) << fakes::difference(b.bench.ours(), base());
    if (!came) return;
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
