#include "orchestrator/summary.h"

#include <gtest/gtest.h>

#include "common/os/files.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/manifest/sources.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

Json deny(const char* event, Json fields) {
  fields["event"] = event;
  fields["verdict"] = "deny";
  return fields;
}

TEST(Summary, GroupsDeniedActsWithCountAndHint) {
  Summary summary;
  for (int i = 0; i < 3; ++i)
    summary.add(deny("dns", {{"host", "evil.example"}, {"reason", "no_rule"}}));
  summary.add(
      deny("egress", {{"host", "r.example"}, {"port", 8443}, {"reason", "port_not_allowed"}}));
  summary.add(deny("file", {{"mount", "workspace"},
                            {"path", ".env"},
                            {"act", "open"},
                            {"reason", "hidden"},
                            {"rule", "default:.env"}}));
  ASSERT_EQ(summary.denied().size(), 3U);
  EXPECT_EQ(summary.denied()[0].what, "resolve evil.example");
  EXPECT_EQ(summary.denied()[0].count, 3U);
  EXPECT_EQ(summary.denied()[0].hint, "--allow evil.example");
  EXPECT_EQ(summary.denied()[1].hint, "--allow r.example:8443");
  EXPECT_EQ(summary.denied()[2].what, "open .env");
  EXPECT_EQ(summary.denied()[2].hint, "");
}

TEST(Summary, PathsSayWhichMountTheyLieIn) {
  const auto act = [](const char* mount) {
    return describe_act(
        {{"event", "file"}, {"act", "open"}, {"mount", mount}, {"path", ".ssh/id"}});
  };
  EXPECT_EQ(act("workspace"), "open .ssh/id");
  EXPECT_EQ(act("home"), "open ~/.ssh/id");
  EXPECT_EQ(act("opt"), "open opt:/.ssh/id");
}

TEST(Summary, AFloorAddressHasNoHint) {
  Summary summary;
  summary.add(
      deny("egress", {{"host", "169.254.169.254"}, {"port", 80}, {"reason", "metadata_address"}}));
  EXPECT_EQ(summary.denied()[0].hint, "");
}

TEST(Summary, AddsUpWhatWasReachedAndKeepsFailuresApart) {
  Summary summary;
  const Json allow = {{"event", "egress"},   {"verdict", "allow"}, {"reason", "allowed"},
                      {"host", "r.example"}, {"port", 443},        {"bytes_up", 10U},
                      {"bytes_down", 2000U}};
  summary.add(allow);
  summary.add(allow);
  Json failed = allow;
  failed["verdict"] = "error";
  failed["reason"] = "connect_failed";
  summary.add(failed);
  summary.add({{"event", "dns"}, {"verdict", "allow"}, {"host", "r.example"}});
  ASSERT_EQ(summary.hosts().size(), 1U);
  EXPECT_EQ(summary.hosts().at("r.example:443").connections, 2U);
  EXPECT_EQ(summary.hosts().at("r.example:443").bytes_down, 4000U);
  EXPECT_EQ(summary.errors().size(), 1U);
  EXPECT_TRUE(summary.denied().empty());
}

TEST(Summary, CountsWhatWasSuppressed) {
  Summary summary;
  summary.add(deny("dns", {{"host", "evil.example"}, {"reason", "no_rule"}}));
  summary.add({{"event", "suppressed"},
               {"of", "dns"},
               {"count", 41U},
               {"fields", R"({"host":"evil.example","reason":"no_rule","verdict":"deny"})"}});
  ASSERT_EQ(summary.denied().size(), 1U);
  EXPECT_EQ(summary.denied()[0].count, 42U);
}

TEST(EventReader, SkipsBrokenLinesAndGoesOnWhereItStopped) {
  const auto directory = os::TempDir::create("/tmp", "events-test-");
  ASSERT_TRUE(directory.ok());
  const fs::path file = directory->path() / "events.jsonl";
  int count = 0;
  const auto visit = [&](const Json&) { ++count; };
  EXPECT_EQ(*for_each_event(file, 0, visit), 0U);
  ASSERT_TRUE(os::write_file_atomic(file, "{\"a\":1}\nnot json\n[]\n{\"b\":2}\n{\"cut").ok());
  const auto offset = for_each_event(file, 0, visit);
  ASSERT_TRUE(offset.ok());
  EXPECT_EQ(count, 2);
  EXPECT_EQ(*offset, 28U);
  ASSERT_TRUE(
      os::write_file_atomic(file, "{\"a\":1}\nnot json\n[]\n{\"b\":2}\n{\"cut\":1}\n").ok());
  EXPECT_EQ(*for_each_event(file, *offset, visit), 38U);
  EXPECT_EQ(count, 3);
}

class Sources : public ::testing::Test {
 protected:
  Sources()
      : temporary_(std::move(*os::TempDir::create("/tmp", "sources-test-"))),
        root_(fs::canonical(temporary_.path())) {
    workspace_ = root_ / "workspace";
    fs::create_directories(workspace_);
    places_ = {root_ / "user.yaml", root_ / "organisation.yaml", root_ / "trusted.json"};
  }
  static void write(const fs::path& file, const std::string& text, mode_t mode = 0600) {
    ASSERT_TRUE(os::write_file_atomic(file, text, mode).ok());
  }
  os::TempDir temporary_;
  fs::path root_;
  fs::path workspace_;
  ManifestPlaces places_;
};

constexpr const char* kFivePids = "version: 1\nprocess: {pids: 5}\n";

TEST_F(Sources, AWorkspacesManifestCountsOnlyOnceItsContentWasApproved) {
  const fs::path own = workspace_ / "cofferdam.yaml";
  write(own, kFivePids);
  auto loaded = load_manifest(places_, {}, workspace_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->source, "defaults");
  EXPECT_EQ(loaded->notes.size(), 1U);
  EXPECT_FALSE(load_manifest(places_, own, workspace_).ok());

  ASSERT_TRUE(trust_manifest(places_, own).ok());
  loaded = load_manifest(places_, {}, workspace_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->manifest.pids, 5U);

  write(own, "version: 1\nnetwork: {rules: [evil.example]}\n");
  loaded = load_manifest(places_, {}, workspace_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->source, "defaults");
  EXPECT_FALSE(load_manifest(places_, own, workspace_).ok());
}

TEST_F(Sources, ALinkIntoTheWorkspaceIsStillTheWorkspaces) {
  write(workspace_ / "m.yaml", kFivePids);
  fs::create_symlink(workspace_ / "m.yaml", root_ / "outside.yaml");
  EXPECT_FALSE(load_manifest(places_, root_ / "outside.yaml", workspace_).ok());
}

// What the user approved for one project, or wrote for himself, is not for another one to pick.
TEST_F(Sources, ALinkOutOfTheWorkspaceBorrowsNoTrust) {
  const fs::path other = root_ / "other";
  fs::create_directories(other);
  write(other / "cofferdam.yaml", kFivePids);
  ASSERT_TRUE(trust_manifest(places_, other / "cofferdam.yaml").ok());
  fs::create_symlink(other / "cofferdam.yaml", workspace_ / "cofferdam.yaml");
  fs::create_directory_symlink(other, workspace_ / "conf");
  fs::create_directory_symlink(workspace_, root_ / "way");
  const auto loaded = load_manifest(places_, {}, workspace_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->source, "defaults");
  EXPECT_EQ(loaded->notes.size(), 1U);
  for (const fs::path& asked : {workspace_ / "cofferdam.yaml", workspace_ / "conf/cofferdam.yaml",
                                root_ / "way/cofferdam.yaml"}) {
    EXPECT_FALSE(load_manifest(places_, asked, workspace_).ok()) << asked;
  }
  EXPECT_EQ(load_manifest(places_, other / "cofferdam.yaml", workspace_)->manifest.pids, 5U);
}

TEST_F(Sources, TheUsersFileCountsUnlessOthersMayWriteIt) {
  write(places_.user, kFivePids);
  EXPECT_EQ(load_manifest(places_, {}, workspace_)->manifest.pids, 5U);
  write(places_.user, kFivePids, 0666);
  EXPECT_FALSE(load_manifest(places_, {}, workspace_).ok());
}

TEST_F(Sources, TheOrganisationsFileBoundsEveryOtherOne) {
  write(places_.organisation, kFivePids, 0644);
  const auto alone = load_manifest(places_, {}, workspace_);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->manifest.pids, 5U);
  write(places_.user, "version: 1\nprocess: {pids: 100}\n");
  auto both = load_manifest(places_, {}, workspace_);
  ASSERT_TRUE(both.ok()) << both.error().message();
  ASSERT_TRUE(both->organisation);
  ASSERT_TRUE(narrow(&both->manifest, *both->organisation).ok());
  EXPECT_EQ(both->manifest.pids, 5U);
  EXPECT_EQ(both->manifest.origins.at("process.pids"), places_.organisation.string());
  write(places_.organisation, kFivePids, 0666);
  EXPECT_FALSE(load_manifest(places_, {}, workspace_).ok());
}

TEST_F(Sources, TheUsersOwnFileBoundsWhatIsAskedForAndTemplates) {
  write(places_.user, "version: 1\nprocess: {pids: 100}\nmode: read-only\n");
  const auto loaded = load_manifest(places_, "test", workspace_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(loaded->manifest.pids, 100U);
  EXPECT_EQ(loaded->manifest.mode, "read-only");
  EXPECT_EQ(loaded->manifest.env_set.at("CI"), "true");
  EXPECT_EQ(loaded->manifest.narrowed.size(), 2U);
  EXPECT_EQ(loaded->manifest.origins.at("env.set.CI"), "template:test");
}

TEST_F(Sources, ABrokenManifestCannotBeTrusted) {
  write(workspace_ / "cofferdam.yaml", "version: 1\nbogus: 1\n");
  EXPECT_FALSE(trust_manifest(places_, workspace_ / "cofferdam.yaml").ok());
}

}  // namespace
}  // namespace cofferdam::orchestrator
