#include "egressproxy/pins.h"

#include <gtest/gtest.h>

#include "egressproxy/stand_ins.h"

namespace cofferdam::egressproxy {
namespace {

policy::IpAddress address(int number) {
  return policy::IpAddress::from_v4(
      {8, 8, static_cast<std::uint8_t>(number / 256), static_cast<std::uint8_t>(number % 256)});
}

policy::HostName name(const std::string& text) {
  return *policy::HostName::parse(text);
}

TEST(Pins, GiveTheNewestNameFirst) {
  Pins pins;
  EXPECT_TRUE(pins.names(address(1)).empty());
  pins.pin(address(1), name("a.example"));
  pins.pin(address(1), name("b.example"));
  EXPECT_EQ(pins.names(address(1)), (std::vector{name("b.example"), name("a.example")}));
  pins.pin(address(1), name("a.example"));
  EXPECT_EQ(pins.names(address(1)), (std::vector{name("a.example"), name("b.example")}));
  EXPECT_TRUE(pins.holds(address(1), name("b.example")));
  EXPECT_FALSE(pins.holds(address(2), name("b.example")));
  EXPECT_FALSE(pins.holds(address(1), name("c.example")));
}

// A service that rotates its addresses: the earlier ones still lead to the name.
TEST(Pins, KeepEarlierAddressesOfAName) {
  Pins pins;
  for (int i = 0; i < 1000; ++i) pins.pin(address(i), name("cdn.example"));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(pins.holds(address(i), name("cdn.example"))) << i;
}

TEST(Pins, ANameThatRotatesPushesOutOnlyItsOwnAddresses) {
  Pins pins({.addresses = 100, .names_of_address = 8, .addresses_of_name = 10});
  pins.pin(address(5000), name("quiet.example"));
  pins.pin(address(7), name("quiet.example"));
  for (int i = 0; i < 95; ++i) pins.pin(address(i), name("busy.example"));
  EXPECT_TRUE(pins.holds(address(5000), name("quiet.example")));
  // An address that another name still has stays.
  EXPECT_EQ(pins.names(address(7)), std::vector{name("quiet.example")});
  EXPECT_FALSE(pins.holds(address(84), name("busy.example")));
  EXPECT_TRUE(pins.holds(address(85), name("busy.example")));
  EXPECT_EQ(pins.size(), 12U);
  // What is answered again is not the oldest any more.
  pins.pin(address(85), name("busy.example"));
  pins.pin(address(200), name("busy.example"));
  EXPECT_TRUE(pins.holds(address(85), name("busy.example")));
  EXPECT_FALSE(pins.holds(address(86), name("busy.example")));
}

TEST(Pins, AreBoundedInAllAndForgetTheLeastUsed) {
  Pins pins({.addresses = 10, .names_of_address = 3, .addresses_of_name = 100});
  for (int i = 0; i < 10; ++i) pins.pin(address(i), name("n" + std::to_string(i) + ".example"));
  EXPECT_FALSE(pins.names(address(0)).empty());  // used now
  pins.pin(address(10), name("new.example"));
  EXPECT_EQ(pins.size(), 10U);
  EXPECT_FALSE(pins.names(address(0)).empty());
  EXPECT_TRUE(pins.names(address(1)).empty());
  for (int i = 0; i < 5; ++i) pins.pin(address(0), name("m" + std::to_string(i) + ".example"));
  EXPECT_EQ(pins.names(address(0)),
            (std::vector{name("m4.example"), name("m3.example"), name("m2.example")}));
}

// Who answers for a wildcard gives each of many addresses many long names: neither limit is
// reached, and the memory is spent.
TEST(Pins, AreBoundedInPairsOfAddressAndName) {
  Pins pins({.addresses = 1000, .names_of_address = 50, .addresses_of_name = 1000, .pairs = 100});
  for (int i = 0; i < 2000; ++i) {
    const auto who = name("n" + std::to_string(i) + ".wild.example");
    pins.pin(address(i % 100), who);
    ASSERT_LE(pins.pairs(), 100U);
    ASSERT_TRUE(pins.holds(address(i % 100), who));
  }
  EXPECT_LE(pins.size(), 100U);
  // The one that is asked for stays, however many others come.
  Pins few({.addresses = 1000, .names_of_address = 50, .addresses_of_name = 1000, .pairs = 3});
  for (int i = 0; i < 10; ++i) few.pin(address(1), name("n" + std::to_string(i) + ".example"));
  EXPECT_EQ(few.names(address(1)).front(), name("n9.example"));
}

TEST(Pins, SurviveEveryOrderOfUse) {
  Pins pins({.addresses = 7, .names_of_address = 2, .addresses_of_name = 3, .pairs = 12});
  unsigned state = 1;
  const auto next = [&state](unsigned below) {
    state = state * 1103515245U + 12345U;
    return (state >> 16U) % below;
  };
  for (int i = 0; i < 20000; ++i) {
    const auto at = address(static_cast<int>(next(12)));
    const auto who = name("n" + std::to_string(next(6)) + ".example");
    pins.pin(at, who);
    ASSERT_TRUE(pins.holds(at, who));
    ASSERT_LE(pins.size(), 7U);
    ASSERT_LE(pins.pairs(), 12U);
    ASSERT_LE(pins.names(at).size(), 2U);
    ASSERT_EQ(pins.names(at).front(), who);
  }
}

TEST(StandIns, AreStableDistinctAndBounded) {
  StandIns stand_ins(300);
  const auto first = stand_ins.address_of(name("a.example"));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->to_text(), "198.18.0.1");
  EXPECT_EQ(stand_ins.address_of(name("a.example")), first);
  for (int i = 1; i < 300; ++i) {
    EXPECT_TRUE(stand_ins.address_of(name("n" + std::to_string(i) + ".example")).has_value());
  }
  EXPECT_EQ(stand_ins.address_of(name("n299.example"))->to_text(), "198.18.1.44");
  EXPECT_FALSE(stand_ins.address_of(name("late.example")).has_value());
  EXPECT_EQ(stand_ins.address_of(name("a.example")), first);
}

}  // namespace
}  // namespace cofferdam::egressproxy
