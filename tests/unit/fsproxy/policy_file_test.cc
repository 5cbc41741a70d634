#include "fsproxy/fuse/policy_file.h"

#include <gtest/gtest.h>

#include "fsproxy/fuse/arguments.h"

namespace cofferdam::fsproxy {
namespace {

Json sample() {
  return Json::parse(R"({"version": 1, "sandbox": "s", "operation": "o", "manifest": "m",
    "owner": {"uids": [1000], "gids": [100, 1000], "shown_uid": 5, "shown_gid": 6, "other_uid": 65534, "other_gid": 65533},
    "quota": {"bytes": 10, "entries": 20},
    "mounts": [{"name": "workspace", "path": "/w", "lower": "/w", "layer": "/l", "writable": true, "record": true, "xattr": true,
                "rules": [{"id": "a", "action": "hide", "pattern": ".env"}]},
               {"name": "opt", "path": "/opt", "lower": "/opt", "layer": null, "writable": false, "record": false, "xattr": false,
                "rules": []}]})");
}

TEST(FsPolicyFile, ReadsTheContract) {
  const auto policy = parse_fs_policy(sample().dump());
  ASSERT_TRUE(policy.ok()) << policy.error().message();
  EXPECT_EQ(policy->quota_entries, 20U);
  EXPECT_EQ(policy->owner.shown(1000), 5U);
  EXPECT_EQ(policy->owner.shown(0), 65534U);
  EXPECT_EQ(policy->owner.shown_group(100), 6U);
  EXPECT_EQ(policy->owner.shown_group(0), 65533U);
  ASSERT_EQ(policy->mounts.size(), 2U);
  EXPECT_FALSE(policy->mounts[1].layer.has_value());
  EXPECT_FALSE(policy->mounts[0].rules.decide(".env", false).visible());
}

TEST(FsPolicyFile, RefusesWhatItDoesNotKnow) {
  const std::vector<Json> patches = {
      Json::parse(R"([{"op":"add","path":"/extra","value":1}])"),
      Json::parse(R"([{"op":"replace","path":"/version","value":2}])"),
      Json::parse(R"([{"op":"remove","path":"/owner"}])"),
      Json::parse(R"([{"op":"replace","path":"/owner/uids","value":[]}])"),
      Json::parse(R"([{"op":"replace","path":"/owner/shown_uid","value":"0"}])"),
      Json::parse(R"([{"op":"replace","path":"/owner/shown_uid","value":4294967296}])"),
      Json::parse(R"([{"op":"replace","path":"/quota/bytes","value":-1}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts","value":[]}])"),
      Json::parse(R"([{"op":"add","path":"/mounts/0/extra","value":1}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts/0/lower","value":"relative"}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts/0/layer","value":null}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts/1/lower","value":null}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts/1/name","value":"workspace"}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts/0/rules/0/action","value":"allow"}])"),
      Json::parse(R"([{"op":"replace","path":"/mounts/0/writable","value":1}])"),
  };
  for (const Json& patch : patches) {
    EXPECT_FALSE(parse_fs_policy(sample().patch(patch).dump()).ok()) << patch;
  }
  for (const char* text : {"", "[]", "1", "{", "{}"}) EXPECT_FALSE(parse_fs_policy(text).ok());
}

TEST(FsArguments, TakesTheContractAndNothingElse) {
  const std::vector<std::string> good = {"--policy",   "p",     "--events-fd",   "3",
                                         "--ready-fd", "4",     "--liveness-fd", "5",
                                         "--mount",    "a=b=6", "--control-fd",  "7"};
  const auto parsed = parse_arguments(good);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->mounts[0].first, "a=b");
  EXPECT_EQ(parsed->mounts[0].second, 6);
  EXPECT_EQ(parsed->control_fd, 7);
  for (std::size_t i = 0; i < good.size(); i += 2) {
    if (good[i] == "--control-fd") continue;
    std::vector<std::string> less = good;
    less.erase(less.begin() + static_cast<long>(i), less.begin() + static_cast<long>(i) + 2);
    EXPECT_FALSE(parse_arguments(less).ok()) << good[i];
  }
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--unknown", "1"},
                                             {"--mount", "x"},
                                             {"--mount", "=3"},
                                             {"--mount", "x=2"},
                                             {"--events-fd", "-1"},
                                             {"--events-fd", "3x"},
                                             {"--ready-fd"}}) {
    std::vector<std::string> bad = good;
    bad.insert(bad.end(), more.begin(), more.end());
    EXPECT_FALSE(parse_arguments(bad).ok()) << more[0];
  }
}

}  // namespace
}  // namespace cofferdam::fsproxy
