#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>

#include "common/os/files.h"
#include "egressproxy/events.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;
using policy::Verdict;

TEST(Recorder, CountsEveryReasonThatThereIs) {
  Recorder recorder(nullptr);
  std::map<std::string, std::uint64_t> expected;
  for (const Verdict verdict : {Verdict::kDeny, Verdict::kAllow, Verdict::kError}) {
    // Also those that were added last.
    for (std::size_t i = 0; i <= static_cast<std::size_t>(Reason::kUpstreamProxyRefused); ++i) {
      EgressRecord record;
      record.decision = {verdict, static_cast<Reason>(i), {}};
      record.protocol = "tcp";
      for (std::size_t times = 0; times <= i; ++times) recorder.record(record);
      expected[std::string(to_text(verdict)) + " " +
               std::string(policy::to_text(record.decision.reason)) + " tcp"] = i + 1;
    }
  }
  std::map<std::string, std::uint64_t> counted;
  recorder.for_each_count(
      [&counted](Verdict verdict, Reason reason, std::string_view protocol, std::uint64_t count) {
        counted[std::string(to_text(verdict)) + " " + std::string(policy::to_text(reason)) + " " +
                std::string(protocol)] = count;
      });
  EXPECT_EQ(counted, expected);
}

// A hostile name server answers with hundreds of private addresses.
TEST(Recorder, TellsOnlySomeOfManyRefusedAddresses) {
  char path[] = "/tmp/cofferdam-recorder-XXXXXX";
  os::UniqueFd fd(::mkstemp(path));
  ASSERT_TRUE(fd);
  {
    log::EventLog events(std::move(fd), {"s", "o", "m", "egressproxy"});
    Recorder recorder(&events);
    DnsRecord record;
    record.host = "a.example";
    record.type = "A";
    for (int i = 0; i < 300; ++i) {
      const auto last = static_cast<std::uint8_t>(i % 256);
      record.dropped.push_back({policy::IpAddress::from_v4({10, 0, 0, last}),
                                {Verdict::kDeny, Reason::kPrivateAddress, {}}});
    }
    recorder.record(record);
  }
  const auto text = os::read_file(path);
  std::remove(path);
  ASSERT_TRUE(text.ok());
  const auto event = parse_json(*text);
  ASSERT_TRUE(event.ok()) << *text;
  EXPECT_EQ(event->at("dropped").size(), 16U);
  EXPECT_EQ(event->at("dropped_more"), 284);
  EXPECT_LT(text->size(), 4096U) << "a line fits into a pipe at once";
}

}  // namespace
}  // namespace cofferdam::egressproxy
