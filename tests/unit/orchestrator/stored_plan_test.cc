#include "orchestrator/stored_plan.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator {
namespace {

Plan full_plan() {
  Plan plan;
  plan.sandbox_id = "0123456789abcdef";
  plan.sandbox_name = "named";
  plan.manifest_digest = "sha256:1";
  plan.engine = "docker";
  plan.workspace = "/w";
  plan.directory = "/w/d";
  plan.home = "/h";
  plan.user_name = "u";
  plan.hostname = "host";
  plan.mounts = {{"workspace", "/w", "/w", "/s", true},
                 {"opt", "/opt", "/opt", std::nullopt, false}};
  plan.env = {{"A", "1"}, {"TOKEN", "secret"}};
  plan.files = {{"/etc/ca", "certificate"}};
  plan.ids = {0, 0, 1879048192, 5, 6, 1879113728};
  plan.limits.pids = 7;
  plan.limits.memory_bytes = 8;
  plan.limits.cpus = 1.5;
  plan.limits.timeout = std::chrono::milliseconds(9);
  plan.limits.grace = std::chrono::milliseconds(10);
  plan.limits.tmp_bytes = 11;
  plan.limits.tmp_exec = false;
  plan.limits.shm_bytes = 12;
  plan.limits.output_bytes = 13;
  plan.docker = DockerPlan{"image:1", "sha256:2", {"/data"}};
  plan.trace = {{"sandbox.profile", "workspace"}};
  return plan;
}

TEST(StoredPlan, ComesBackAsItWasButForWhatMustNotBeKept) {
  const Plan plan = full_plan();
  const Json json = stored_plan(plan, {"TOKEN"});
  EXPECT_EQ(json.dump().find("secret"), std::string::npos);
  const auto restored = parse_stored_plan(json);
  ASSERT_TRUE(restored.ok()) << restored.error().message();
  EXPECT_EQ(restored->missing_variables, std::vector<std::string>{"TOKEN"});
  EXPECT_EQ(restored->plan.env, (std::map<std::string, std::string>{{"A", "1"}}));
  EXPECT_FALSE(restored->plan.ids.range_base);
  // Stored again it is the same.
  Plan again = restored->plan;
  again.env["TOKEN"] = "other";
  EXPECT_EQ(stored_plan(again, {"TOKEN"}), json);
}

TEST(StoredPlan, ADamagedOneIsAnError) {
  const Json json = stored_plan(full_plan(), {});
  for (const auto& [key, value] : json.items()) {
    Json damaged = json;
    damaged.erase(key);
    EXPECT_FALSE(parse_stored_plan(damaged).ok()) << key;
    damaged[key] = {{"another", "shape"}, {"of", 5}};
    if (key != "trace") {
      EXPECT_FALSE(parse_stored_plan(damaged).ok()) << key;
    }
  }
  EXPECT_FALSE(parse_stored_plan(Json::array()).ok());
}

}  // namespace
}  // namespace cofferdam::orchestrator
