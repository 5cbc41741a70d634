// The compose stack of compose/: what it promises is in the file.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "common/os/files.h"
#include "common/policy/egress_policy.h"
#include "egressproxy/options.h"

namespace cofferdam::egressproxy {
namespace {

const std::string kFolder = std::string(COFFERDAM_SOURCE_DIR) + "/compose/";

class ComposeFile : public testing::Test {
 protected:
  YAML::Node stack = YAML::LoadFile(kFolder + "egress.yaml");
};

TEST_F(ComposeFile, LeavesTheGateAsTheOnlyWayOut) {
  ASSERT_TRUE(stack["networks"]["inside"]["internal"].as<bool>());
  for (const auto& service : stack["services"]) {
    const auto networks = service.second["networks"].as<std::vector<std::string>>();
    const bool out = std::find(networks.begin(), networks.end(), "outside") != networks.end();
    EXPECT_EQ(out, service.first.as<std::string>() == "gate");
    EXPECT_FALSE(service.second["network_mode"].IsDefined());
    EXPECT_FALSE(service.second["ports"].IsDefined());
    EXPECT_FALSE(service.second["privileged"].IsDefined());
    EXPECT_EQ(service.second["cap_drop"].as<std::vector<std::string>>(),
              std::vector<std::string>{"ALL"});
  }
}

TEST_F(ComposeFile, PointsEveryProxyVariableAtTheGate) {
  const YAML::Node environment = stack["services"]["app"]["environment"];
  for (const char* name : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"}) {
    EXPECT_EQ(environment[name].as<std::string>(), "http://gate:3128") << name;
  }
}

TEST_F(ComposeFile, StartsTheGateWithOptionsThatItUnderstands) {
  std::vector<std::string> words{"cofferdam-egressproxy"};
  for (const auto& word : stack["services"]["gate"]["command"])
    words.push_back(word.as<std::string>());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const auto options = parse_options(static_cast<int>(argv.size()), argv.data());
  ASSERT_TRUE(options.ok()) << options.error().message();
  ASSERT_TRUE(options->has_value());
  ASSERT_EQ((*options)->listen.size(), 1U);
  EXPECT_EQ((*options)->listen[0].port, 3128);
  EXPECT_EQ((*options)->listen[0].role, Role::kExplicit);
  EXPECT_FALSE((*options)->events_file.empty());
}

TEST_F(ComposeFile, HasAPolicyThatParses) {
  const auto text = os::read_file(kFolder + "egress.json");
  ASSERT_TRUE(text.ok());
  const auto policy = policy::EgressPolicy::parse(*text);
  ASSERT_TRUE(policy.ok()) << policy.error().message();
  EXPECT_EQ(policy->mode(), policy::EgressMode::kEnforce);
  EXPECT_FALSE(policy->rules().empty());
}

}  // namespace
}  // namespace cofferdam::egressproxy
