#include "orchestrator/modes.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator {
namespace {

Json started(const char* mode) {
  return {{"event", "run_started"}, {"sandbox.profile", mode}};
}
Json switched(const char* from, const char* to, const char* event = "mode_switched") {
  return {{"event", event}, {"from", from}, {"to", to}};
}

TEST(Modes, TheLogReplayedGivesTheMode) {
  const struct {
    std::vector<Json> events;
    const char* mode;
  } cases[] = {
      {{}, ""},
      {{started("workspace"), {{"event", "network"}}}, "workspace"},
      {{started("workspace"), switched("workspace", "open")}, "open"},
      {{started("workspace"), switched("workspace", "open"),
        switched("workspace", "open", "mode_switch_failed")},
       "workspace"},
      {{started("open"), switched("open", "workspace"), switched("workspace", "read-only")},
       "read-only"},
  };
  for (const auto& c : cases) EXPECT_EQ(replay_mode(c.events), c.mode);
}

}  // namespace
}  // namespace cofferdam::orchestrator
