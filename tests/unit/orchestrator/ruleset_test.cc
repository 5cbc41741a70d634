#include "orchestrator/init/ruleset.h"

#include <gtest/gtest.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <cstring>
#include <vector>

namespace cofferdam::init {
namespace {

std::vector<nlmsghdr> messages(const std::string& bytes) {
  std::vector<nlmsghdr> found;
  std::size_t at = 0;
  while (at + sizeof(nlmsghdr) <= bytes.size()) {
    nlmsghdr header{};
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (header.nlmsg_len < sizeof header || at + header.nlmsg_len > bytes.size()) return {};
    found.push_back(header);
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  return at == bytes.size() ? found : std::vector<nlmsghdr>{};
}

TEST(Netlink, PadsAttributesAndCountsTheMessageLength) {
  NetlinkBatch batch;
  batch.begin(16, NLM_F_ACK);
  const std::size_t nest = batch.open_nest(1);
  batch.attribute_text(2, "ab");  // 4 + 3, padded to 8
  batch.close_nest(nest);
  batch.end();
  const auto found = messages(batch.bytes());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].nlmsg_len, sizeof(nlmsghdr) + 4 + 8);
  EXPECT_EQ(batch.wanted_acks(), 1);
}

TEST(Ruleset, IsOneTransactionOfATableTwoChainsAndTheirRules) {
  const NetlinkBatch batch = make_ruleset();
  const auto found = messages(batch.bytes());
  ASSERT_GT(found.size(), 4U);
  const auto kind = [&](std::size_t i) { return found[i].nlmsg_type & 0xff; };
  EXPECT_EQ(found.front().nlmsg_type, NFNL_MSG_BATCH_BEGIN);
  EXPECT_EQ(found.back().nlmsg_type, NFNL_MSG_BATCH_END);
  EXPECT_EQ(kind(1), NFT_MSG_NEWTABLE);
  EXPECT_EQ(kind(2), NFT_MSG_NEWCHAIN);
  EXPECT_EQ(kind(3), NFT_MSG_NEWCHAIN);
  for (std::size_t i = 4; i + 1 < found.size(); ++i) EXPECT_EQ(kind(i), NFT_MSG_NEWRULE);
  // steer: DNS twice, four own addresses, the rest; guard: known, four own addresses, reject.
  EXPECT_EQ(found.size(), 2U + 3U + 7U + 6U);
  EXPECT_EQ(batch.wanted_acks(), 16);
}

}  // namespace
}  // namespace cofferdam::init
