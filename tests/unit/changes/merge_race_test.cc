// Somebody else writes into the workspace while a merge does: nothing that they saved is lost.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/merge.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::directory;
using fakes::file;
using fakes::LayerBuilder;
using fakes::link;
using fakes::Tree;

const Tree& base() {
  static const Tree kBase = {
      {"a.txt", file("one\n")}, {"b.sh", file("#!/bin/sh\n", 0755)},
      {"dir", directory()},     {"dir/x", file("x")},
      {"dir/sub", directory()}, {"dir/sub/y", file("y")},
      {"link", link("a.txt")},  {"config.txt", file("read me\n")},
  };
  return kBase;
}

TEST(MergeRace, NothingIsWrittenThroughALinkThatAppearsAtTheLastMoment) {
  const Workbench bench(base());
  std::filesystem::create_directory(bench.root() / "elsewhere");
  LayerBuilder layer(bench.workspace());
  layer.put("dir/new", file("theirs"));
  MergeOptions options;
  options.before_act = [&](std::string_view act, std::string_view) -> Status {
    if (act == "stage") bench.edit("dir", link("../elsewhere"));
    return {};
  };
  const MergeReport report = merge_of(layer, options);
  EXPECT_EQ(report.exit_status(), 125);
  EXPECT_TRUE(report.stuck.empty());
  EXPECT_TRUE(std::filesystem::is_empty(bench.root() / "elsewhere"));
}

TEST(MergeRace, AnEditBetweenDecisionAndExchangeIsNotLost) {
  for (const char* act : {"stage", "exchange", "remove"}) {
    SCOPED_TRACE(act);
    const Workbench bench(base());
    LayerBuilder layer(bench.workspace());
    layer.put("a.txt", file("theirs"));
    layer.remove("dir/x");
    layer.put("other", file("o"));
    MergeOptions options;
    bool edited = false;
    options.before_act = [&](std::string_view now, std::string_view path) -> Status {
      if (now == act && !edited) {
        edited = true;
        bench.edit(now == "remove" ? std::string(path) : "a.txt", file("the user's, in time"));
      }
      return {};
    };
    const MergeReport report = merge_of(layer, options);
    EXPECT_EQ(report.exit_status(), 125) << describe(report, false);
    EXPECT_TRUE(report.stuck.empty());
    Tree expected = base();
    expected[std::string(act) == "remove" ? "dir/x" : "a.txt"] = file("the user's, in time");
    EXPECT_EQ(bench.ours(), expected) << fakes::difference(bench.ours(), expected);
    EXPECT_EQ(*count_unmerged_changes(layer.record()), 3U);
  }
}

TEST(MergeRace, ANameThatAppearsInADirectoryWhileItIsRemovedIsKept) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.remove("dir");
  MergeOptions options;
  options.before_act = [&](std::string_view act, std::string_view path) -> Status {
    if (act == "remove" && path == "dir") bench.edit("dir/late", file("mine"));
    return {};
  };
  const MergeReport report = merge_of(layer, options);
  EXPECT_EQ(report.exit_status(), 125);
  Tree expected = base();
  expected["dir/late"] = file("mine");
  EXPECT_EQ(bench.ours(), expected) << fakes::difference(bench.ours(), expected);
}

TEST(MergeRace, AFileThatTheUserCreatesAtTheLastMomentIsNotReplaced) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("new", file("theirs"));
  MergeOptions options;
  options.before_act = [&](std::string_view act, std::string_view) -> Status {
    if (act == "create") bench.edit("new", file("mine"));
    return {};
  };
  EXPECT_EQ(merge_of(layer, options).exit_status(), 125);
  EXPECT_EQ(bench.ours().at("new").content, "mine");
}

TEST(MergeRace, ADirectoryThatMovesAwayWhileItIsWrittenIntoIsNotFollowed) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("dir/new", file("theirs"));
  MergeOptions options;
  options.before_act = [&](std::string_view act, std::string_view) -> Status {
    if (act == "create") std::filesystem::rename(bench.workspace() / "dir", bench.root() / "moved");
    return {};
  };
  const MergeReport report = merge_of(layer, options);
  EXPECT_EQ(report.exit_status(), 125);
  EXPECT_TRUE(report.stuck.empty());
  EXPECT_FALSE(std::filesystem::exists(bench.root() / "moved/new"));
}

TEST(MergeRace, WhatCannotBeUndoneIsKeptAndNamed) {
  for (const bool outside : {false, true}) {
    SCOPED_TRACE(outside);
    const Workbench bench(base());
    LayerBuilder layer(bench.workspace());
    layer.put("a.txt", file("theirs"));
    layer.put("z", file("z"));
    layer.remove("b.sh");
    MergeOptions options;
    options.objects_in_workspace = outside;
    options.before_act = [&](std::string_view act, std::string_view path) -> Status {
      if (act != "read back" || path != "z") return {};
      bench.edit("a.txt", file("edited right after it was merged"));
      return Error("injected");
    };
    const MergeReport report = merge_of(layer, options);
    EXPECT_EQ(report.exit_status(), 125);
    ASSERT_EQ(report.stuck.size(), 1U) << describe(report, false);
    EXPECT_EQ(report.stuck[0].path, "a.txt");
    // The newest that the user made stays; what was there before is kept and named.
    Tree expected = base();
    expected["a.txt"] = file("edited right after it was merged");
    EXPECT_EQ(bench.ours(), expected) << fakes::difference(bench.ours(), expected);
    EXPECT_NE(describe(report, false).find(report.kept.string()), std::string::npos);
    const Tree kept = fakes::read_tree(report.kept);
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept.begin()->second, file("one\n"));
    // Nothing is settled: what is not merged can still be.
    EXPECT_EQ(*count_unmerged_changes(layer.record()), 3U);
  }
}

// An editor that saves as editors do, without a pause; between two saves it can be held.
class Saver final {
 public:
  explicit Saver(std::filesystem::path target)
      : target_(std::move(target)), thread_([this] { work(); }) {}
  ~Saver() {
    end_ = true;
    thread_.join();
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  std::string last;  // what it saved last; while it is held
  bool active = false;

 private:
  void work() {
    for (int n = 0; !end_; ++n) {
      {
        const std::lock_guard lock(mutex_);
        if (active) {
          last = "mine " + std::to_string(n) + "\n";
          const auto part = target_.string() + ".part";
          EXPECT_TRUE(os::write_file_atomic(part, last, 0644).ok());
          EXPECT_EQ(::rename(part.c_str(), target_.c_str()), 0);
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200 + n % 7 * 150));
    }
  }

  std::filesystem::path target_;
  std::mutex mutex_;
  std::atomic<bool> end_ = false;
  std::thread thread_;
};

TEST(MergeRace, AWriterThatSavesInALoopLosesNothing) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("theirs\n"));
  layer.put("other", file("other\n"));
  const auto target = bench.workspace() / "a.txt";
  Saver saver(target);
  int written = 0;
  int refused = 0;
  for (int round = 0; round < 60; ++round) {
    {
      const auto held = saver.hold();
      saver.active = round % 6 != 0;  // and sometimes nobody saves
      saver.last.clear();
      bench.edit("a.txt", file("one\n"));
      bench.erase("other");
      std::filesystem::remove(layer.record().directory / "merged.json");
    }
    const MergeReport report = merge_of(layer);
    const auto held = saver.hold();
    const std::string now = *os::read_file(target);
    ASSERT_EQ(now, !saver.last.empty() ? saver.last
                   : report.written    ? "theirs\n"
                                       : "one\n")
        << describe(report, false);
    ++(report.written ? written : refused);
    // All or nothing: the other file came with it or not at all.
    ASSERT_EQ(std::filesystem::exists(bench.workspace() / "other"), report.written);
  }
  EXPECT_GE(written, 10);
}

TEST(MergeRace, AFileSystemThatCannotExchangeIsNamedWithTheRemedy) {
  const Workbench bench(base());
  const auto top = os::open_file(bench.workspace(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(top.ok());
  const auto inside = os::open_file(bench.workspace() / "dir", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(inside.ok());
  // Every file system says so of a directory and what lies in it, as some do of everything.
  const Status refused = os::rename_exchange(top->get(), "dir", inside->get(), "x");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().error_number(), EINVAL);
  EXPECT_NE(refused.error().message().find("ext4, xfs, btrfs"), std::string::npos);
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
