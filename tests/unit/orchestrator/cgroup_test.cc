#include "orchestrator/steps/cgroup.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator {
namespace {

TEST(CgroupPlaces, FollowsVersionOneHierarchiesAndTheirMountRoots) {
  const auto places = parse_cgroup_places(
      "8:pids:/\n4:memory:/outer/own\n1:cpu,cpuacct:/x\n0::/\n",
      "30 25 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
      "31 25 0:27 /outer /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n"
      "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(places.at("pids").directory, "/sys/fs/cgroup/pids");
  EXPECT_EQ(places.at("memory").directory, "/sys/fs/cgroup/memory/own");
  EXPECT_EQ(places.at("cpu").directory, "/sys/fs/cgroup/cpu,cpuacct/x");
  EXPECT_TRUE(places.at("").unified);
  EXPECT_FALSE(places.at("pids").unified);
}

TEST(CgroupPlaces, FollowsTheUnifiedHierarchy) {
  const auto places = parse_cgroup_places(
      "0::/user.slice/user-1000.slice/session-2.scope\n",
      "25 20 0:22 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  EXPECT_EQ(places.at("").directory, "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope");
  EXPECT_EQ(places.count("pids"), 0U);
}

TEST(CgroupPlaces, MakesNothingOfLinesThatItDoesNotKnow) {
  EXPECT_TRUE(parse_cgroup_places("", "").empty());
  EXPECT_TRUE(parse_cgroup_places("nonsense\n", "a b c\n1 2 3 4 5 6 - cgroup\n").empty());
}

TEST(Cgroup, MakesNoGroupWithoutALimit) {
  LimitsPlan limits;
  const auto group = Cgroup::create(limits, "0123456789abcdef");
  ASSERT_TRUE(group.ok());
  EXPECT_TRUE(group->directories().empty());
}

}  // namespace
}  // namespace cofferdam::orchestrator
