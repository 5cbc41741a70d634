#include "orchestrator/sandbox_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "common/os/files.h"
#include "orchestrator/expiry.h"
#include "orchestrator/reap.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

class Store : public ::testing::Test {
 protected:
  Store()
      : directory_(std::move(*os::TempDir::create("/tmp", "store-test-"))),
        store_(directory_.path() / "sandboxes") {}

  OwnedSandbox create(const std::string& name, const std::string& workspace = "/w") {
    SandboxRecord record;
    record.name = name;
    record.workspace = workspace;
    record.argv = {"true", "a b"};
    auto made = store_.create(std::move(record));
    EXPECT_TRUE(made.ok()) << made.error().message();
    return std::move(*made);
  }

  os::TempDir directory_;
  SandboxStore store_;
};

TEST_F(Store, ABoundedLifeWhoseBeginningCannotBeToldIsOver) {
  OwnedSandbox sandbox = create("one");
  const auto write = [&](const char* text) {
    ASSERT_TRUE(os::write_file_atomic(sandbox.record.directory / "manifest.json", text).ok());
  };
  write(R"({"lifetime": {"max_ms": 3600000}})");
  const auto left = left_of_manifest(sandbox.record);
  ASSERT_TRUE(left.ok()) << left.error().message();
  EXPECT_TRUE(left->has_value());
  sandbox.record.created = "";
  EXPECT_FALSE(left_of_manifest(sandbox.record).ok());
  write("{}");  // nothing bounds it
  EXPECT_TRUE(left_of_manifest(sandbox.record).ok());
}

TEST_F(Store, WhatIsCreatedIsListedWithItsLayers) {
  const OwnedSandbox sandbox = create("one");
  const auto list = store_.list();
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1U);
  const SandboxRecord& record = list->front();
  EXPECT_EQ(record.name, "one");
  EXPECT_EQ(record.state, SandboxState::kPending);
  EXPECT_EQ(record.argv, (std::vector<std::string>{"true", "a b"}));
  EXPECT_EQ(record.supervisor_pid, ::getpid());
  EXPECT_GT(record.supervisor_start_ticks, 0U);
  EXPECT_EQ(record.boot_id.size(), 36U);
  for (const char* part : {"upper", "work", "home/upper", "home/work"}) {
    EXPECT_TRUE(fs::is_directory(record.directory / part)) << part;
  }
  struct stat st {};
  ASSERT_EQ(::stat(record.directory.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0700U);
}

TEST_F(Store, OnlyTheHolderOfTheLockOwns) {
  std::optional<OwnedSandbox> sandbox(create("one"));
  const SandboxRecord record = sandbox->record;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto owned = store_.try_own(record);
    ::_exit(owned.ok() && !owned->has_value() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  sandbox.reset();
  const auto owned = store_.try_own(record);
  ASSERT_TRUE(owned.ok());
  EXPECT_TRUE(owned->has_value());
}

TEST_F(Store, OnlyLegalTransitionsAreTaken) {
  using State = SandboxState;
  OwnedSandbox sandbox = create("one");
  EXPECT_FALSE(sandbox.set_state(State::kStopping).ok());
  EXPECT_FALSE(sandbox.set_state(State::kTerminated).ok());
  EXPECT_TRUE(sandbox.set_state(State::kRunning).ok());
  EXPECT_FALSE(sandbox.set_state(State::kPending).ok());
  EXPECT_TRUE(sandbox.set_state(State::kStopping).ok());
  EXPECT_TRUE(sandbox.set_state(State::kTerminated).ok());
  EXPECT_FALSE(sandbox.record.ended.empty());
  EXPECT_FALSE(sandbox.set_state(State::kFailed).ok());
  EXPECT_EQ(store_.list()->front().state, State::kTerminated);
  OwnedSandbox other = create("two");
  EXPECT_TRUE(other.set_state(State::kFailed).ok());
}

TEST_F(Store, FindsByIdPrefixNameAndLast) {
  const OwnedSandbox first = create("one", "/a");
  ::usleep(2000);
  const OwnedSandbox second = create("two", "/b");
  ::usleep(2000);
  const OwnedSandbox third = create("one", "/b");
  EXPECT_EQ(store_.find("one", "/a")->id, third.record.id);
  EXPECT_EQ(store_.find("two", "/a")->id, second.record.id);
  EXPECT_EQ(store_.find("last", "/a")->id, first.record.id);
  EXPECT_EQ(store_.find("last", "/nowhere")->id, third.record.id);
  EXPECT_EQ(store_.find(second.record.id, "/")->id, second.record.id);
  EXPECT_EQ(store_.find(second.record.id.substr(0, 12), "/")->id, second.record.id);
  EXPECT_FALSE(store_.find(second.record.id.substr(0, 3), "/").ok());
  EXPECT_FALSE(store_.find("three", "/").ok());
}

TEST_F(Store, RefusesNamesThatCouldBePathsOrOptions) {
  for (const char* name : {"../x", "-x", "A", "a/b", ".x", "a b", "last"})
    EXPECT_FALSE(is_sandbox_name(name));
  EXPECT_FALSE(is_sandbox_name(std::string(64, 'a')));
  EXPECT_TRUE(is_sandbox_name(std::string(63, 'a')));
  EXPECT_TRUE(is_sandbox_name("0a_.-"));
  SandboxRecord record;
  record.name = "../x";
  EXPECT_FALSE(store_.create(record).ok());
  EXPECT_TRUE(store_.list()->empty());
}

TEST_F(Store, ADirectoryWithoutAReadableStateIsListedAsFailed) {
  const OwnedSandbox sandbox = create("one");
  ASSERT_TRUE(os::write_file_atomic(sandbox.record.directory / "state.json", "{").ok());
  const auto list = store_.list();
  ASSERT_EQ(list->size(), 1U);
  EXPECT_EQ(list->front().state, SandboxState::kFailed);
  EXPECT_NE(list->front().message.find("state.json"), std::string::npos);
}

TEST_F(Store, RemovesTreesThatTheWorkloadMadeUnreadable) {
  OwnedSandbox sandbox = create("one");
  const fs::path directory = sandbox.record.directory;
  fs::create_directories(directory / "upper" / "a" / "b");
  ::chmod((directory / "upper" / "a").c_str(), 0);
  ASSERT_TRUE(store_.remove(std::move(sandbox)).ok());
  EXPECT_FALSE(fs::exists(directory));
  EXPECT_TRUE(store_.list()->empty());
}

TEST_F(Store, ReapsOnlyWhatHasNotEndedAndNobodyOwns) {
  const OwnedSandbox alive = create("alive");
  {
    OwnedSandbox ended = create("ended");
    ASSERT_TRUE(ended.set_state(SandboxState::kFailed).ok());
  }
  std::string orphan_id;
  {
    OwnedSandbox orphan = create("orphan");
    orphan_id = orphan.record.id;
    ASSERT_TRUE(orphan.set_state(SandboxState::kRunning).ok());
    ASSERT_TRUE(os::write_file_atomic(orphan.record.directory / "upper" / "kept", "x").ok());
  }
  const auto reaped = reap_orphans(store_);
  ASSERT_TRUE(reaped.ok());
  ASSERT_EQ(reaped->size(), 1U);
  EXPECT_EQ(reaped->front().id, orphan_id);
  const auto record = store_.find("orphan", "/");
  EXPECT_EQ(record->state, SandboxState::kFailed);
  EXPECT_FALSE(record->message.empty());
  EXPECT_TRUE(fs::exists(record->upper() / "kept"));
  EXPECT_EQ(store_.find("alive", "/")->state, SandboxState::kPending);
  EXPECT_TRUE(reap_orphans(store_)->empty());
}

TEST_F(Store, ReapingNeverRemovesADirectoryThatIsNotOurs) {
  const fs::path victim = directory_.path() / "precious";
  fs::create_directories(victim);
  OwnedSandbox sandbox = create("one");
  sandbox.record.resources = {
      {"directories", {victim.string(), "/tmp/cofferdam/../" + victim.string()}},
      {"cgroups", {victim.string()}},
      {"containers", {"--help"}}};
  const Reaped reaped = undo_resources(sandbox.record);
  EXPECT_TRUE(fs::exists(victim));
  EXPECT_EQ(reaped.failed.size(), 3U);
}

}  // namespace
}  // namespace cofferdam::orchestrator
