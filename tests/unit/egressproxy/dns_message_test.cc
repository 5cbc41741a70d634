#include "egressproxy/dns_message.h"

#include <gtest/gtest.h>

#include "egressproxy/dns_wire.h"

namespace cofferdam::egressproxy::dns {
namespace {

using policy::HostName;

std::string header(std::uint16_t flags, std::uint16_t questions, std::uint16_t answers = 0,
                   std::uint16_t authorities = 0, std::uint16_t additionals = 0) {
  std::string out;
  for (const std::uint16_t word :
       {std::uint16_t{7}, flags, questions, answers, authorities, additionals}) {
    put_u16(out, word);
  }
  return out;
}

std::string question(std::string_view name, std::uint16_t type = 1, std::uint16_t qclass = 1) {
  std::string out;
  put_name(out, name);
  put_u16(out, type);
  put_u16(out, qclass);
  return out;
}

std::string record(std::string_view owner, std::uint16_t type, std::uint32_t ttl,
                   std::string_view data) {
  std::string out;
  put_name(out, owner);
  put_u16(out, type);
  put_u16(out, 1);
  put_u32(out, ttl);
  put_u16(out, static_cast<std::uint16_t>(data.size()));
  out += data;
  return out;
}

std::string alias(std::string_view owner, std::string_view target, std::uint32_t ttl = 60) {
  std::string data;
  put_name(data, target);
  return record(owner, 5, ttl, data);
}

const HostName kName = *HostName::parse("a.example.com");
const std::string kAddress("\x08\x08\x08\x08", 4);

TEST(DnsQuery, ReadsAnOrdinaryOne) {
  const ParsedQuery parsed = parse_query(header(0x0100, 1) + question("A.Example.COM", 28));
  ASSERT_FALSE(parsed.drop);
  ASSERT_FALSE(parsed.error.has_value());
  EXPECT_EQ(parsed.query.name, "a.example.com");
  EXPECT_EQ(parsed.query.type, 28);
  EXPECT_TRUE(parsed.query.recursion_desired);
  EXPECT_TRUE(parsed.query.name_is_host);
  EXPECT_FALSE(parsed.query.edns);
  EXPECT_EQ(parsed.query.payload_size, 512);
}

TEST(DnsQuery, ClampsTheClientsSize) {
  for (const auto& [size, expected] :
       {std::pair(100, 512), std::pair(512, 512), std::pair(1000, 1000), std::pair(65535, 1232)}) {
    std::string opt(1, '\0');
    put_u16(opt, 41);
    put_u16(opt, static_cast<std::uint16_t>(size));
    put_u32(opt, 0);
    put_u16(opt, 0);
    const auto parsed = parse_query(header(0x0100, 1, 0, 0, 1) + question("a.b") + opt);
    ASSERT_FALSE(parsed.error.has_value());
    EXPECT_TRUE(parsed.query.edns);
    EXPECT_EQ(parsed.query.payload_size, expected);
    // A second OPT is malformed.
    EXPECT_EQ(parse_query(header(0x0100, 1, 0, 0, 2) + question("a.b") + opt + opt).error,
              Rcode::kFormErr);
  }
}

TEST(DnsQuery, RefusesOddShapes) {
  EXPECT_TRUE(parse_query("").drop);
  EXPECT_TRUE(parse_query("short").drop);
  EXPECT_TRUE(parse_query(header(0x8100, 1) + question("a.b")).drop);
  EXPECT_EQ(parse_query(header(0x2800, 1) + question("a.b")).error, Rcode::kNotImp);
  EXPECT_EQ(parse_query(header(0x0100, 0)).error, Rcode::kFormErr);
  EXPECT_EQ(parse_query(header(0x0100, 2) + question("a.b") + question("a.b")).error,
            Rcode::kFormErr);
  EXPECT_EQ(parse_query(header(0x0100, 1, 1) + question("a.b")).error, Rcode::kFormErr);
  EXPECT_EQ(parse_query(header(0x0100, 1)).error, Rcode::kFormErr);
  EXPECT_EQ(parse_query(header(0x0100, 1) + "\x05"
                                            "ab")
                .error,
            Rcode::kFormErr);
  EXPECT_EQ(parse_query(header(0x0100, 1) + "\xc0\x0c" + std::string(4, '\0')).error,
            Rcode::kFormErr);  // a pointer to itself
}

TEST(DnsQuery, MarksNamesThatNoHostHas) {
  for (const std::string& label : {std::string("a.b"), std::string("a b"), std::string("a\0b", 3),
                                   std::string("\xff"), std::string("a\r")}) {
    std::string packet = header(0x0100, 1);
    packet += static_cast<char>(label.size());
    packet += label + std::string("\0\0\1\0\1", 5);
    const auto parsed = parse_query(packet);
    ASSERT_FALSE(parsed.error.has_value());
    EXPECT_FALSE(parsed.query.name_is_host);
  }
}

TEST(DnsQuery, NeverReadsPastTheEnd) {
  const std::string whole = header(0x0100, 1, 0, 0, 1) + question("a.example.com") +
                            std::string("\0\0\x29\x04\xd0\0\0\0\0\0\0", 11);
  for (std::size_t size = 0; size < whole.size(); ++size) (void)parse_query(whole.substr(0, size));
  EXPECT_FALSE(parse_query(whole).error.has_value());
}

TEST(DnsReply, SaysNoWithSoaAndExtendedError) {
  std::string opt("\0\0\x29\x04\xd0\0\0\0\0\0\0", 11);
  const auto parsed = parse_query(header(0x0100, 1, 0, 0, 1) + question("a.example.com") + opt);
  Reply reply;
  reply.rcode = Rcode::kNxDomain;
  reply.soa = true;
  reply.extended_error = 15;
  reply.extended_text = "no_rule";
  const std::string out = write_reply(parsed.query, reply, 512);
  EXPECT_EQ(out[3] & 0xf, 3);
  EXPECT_EQ(out[9], 1);   // authority
  EXPECT_EQ(out[11], 1);  // OPT
  EXPECT_NE(out.find("no_rule"), std::string::npos);
  // Without EDNS there is no OPT.
  const auto old = parse_query(header(0x0100, 1) + question("a.example.com"));
  EXPECT_EQ(write_reply(old.query, reply, 512).find("no_rule"), std::string::npos);
}

TEST(DnsReply, IsTruncatedPastTheLimit) {
  const auto parsed = parse_query(header(0x0100, 1) + question("a.example.com"));
  Reply reply;
  reply.rcode = Rcode::kNoError;
  for (int i = 0; i < 40; ++i) {
    reply.answers.push_back({Type::kA, 60, std::string("\x08\x08\x08", 3) + static_cast<char>(i)});
  }
  const std::string cut = write_reply(parsed.query, reply, 512);
  EXPECT_LE(cut.size(), 512U);
  EXPECT_NE(cut[2] & 0x02, 0);
  const std::string whole = write_reply(parsed.query, reply, 65535);
  EXPECT_EQ(whole[2] & 0x02, 0);
  const auto read = parse_answer(whole, kName, Type::kA);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->addresses.size(), 40U);
}

TEST(DnsAnswer, FollowsTheChainOfOwners) {
  const std::string packet = header(0x8180, 1, 3) + question("a.example.com") +
                             alias("a.example.com", "b.example.net", 30) +
                             alias("b.example.net", "c.example.org", 90) +
                             record("c.example.org", 1, 60, kAddress);
  const auto answer = parse_answer(packet, kName, Type::kA);
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->addresses.size(), 1U);
  EXPECT_EQ(answer->addresses[0].to_text(), "8.8.8.8");
  EXPECT_EQ(answer->ttl, 30U);
  EXPECT_EQ(answer->aliases.size(), 2U);
}

TEST(DnsAnswer, IgnoresRecordsOfOtherOwners) {
  const std::string packet = header(0x8180, 1, 3) + question("a.example.com") +
                             alias("unrelated.example.com", "evil.example.net") +
                             record("evil.example.net", 1, 60, kAddress) +
                             record("b.example.com", 1, 60, kAddress);
  const auto answer = parse_answer(packet, kName, Type::kA);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->addresses.empty());
}

TEST(DnsAnswer, RefusesLoopsLongChainsAndOtherQuestions) {
  const std::string loop = header(0x8180, 1, 2) + question("a.example.com") +
                           alias("a.example.com", "b.example.com") +
                           alias("b.example.com", "a.example.com");
  EXPECT_FALSE(parse_answer(loop, kName, Type::kA).ok());
  std::string chain =
      header(0x8180, 1, 11) + question("a.example.com") + alias("a.example.com", "h0.example.com");
  for (int i = 0; i < 9; ++i) {
    chain += alias("h" + std::to_string(i) + ".example.com",
                   "h" + std::to_string(i + 1) + ".example.com");
  }
  chain += record("h9.example.com", 1, 60, kAddress);
  EXPECT_FALSE(parse_answer(chain, kName, Type::kA).ok());
  const std::string good = question("a.example.com") + record("a.example.com", 1, 60, kAddress);
  EXPECT_TRUE(parse_answer(header(0x8180, 1, 1) + good, kName, Type::kA).ok());
  EXPECT_FALSE(parse_answer(header(0x0100, 1, 1) + good, kName, Type::kA).ok());  // no answer
  EXPECT_FALSE(parse_answer(header(0x8380, 1, 1) + good, kName, Type::kA).ok());  // truncated
  EXPECT_FALSE(
      parse_answer(header(0x8180, 1, 1) + good, *HostName::parse("b.example.com"), Type::kA).ok());
  EXPECT_FALSE(parse_answer(header(0x8180, 1, 1) + good, kName, Type::kAaaa).ok());
  const std::string wrong_size = question("a.example.com") + record("a.example.com", 1, 60, "\x08");
  EXPECT_FALSE(parse_answer(header(0x8180, 1, 1) + wrong_size, kName, Type::kA).ok());
}

TEST(DnsReverse, ReadsBothFamilies) {
  EXPECT_EQ(reverse_address("4.3.2.1.in-addr.arpa")->to_text(), "1.2.3.4");
  EXPECT_EQ(
      reverse_address("8.8.8.8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.8.4.0.6.8.4.1.0.0.2.ip6.arpa")
          ->to_text(),
      "2001:4860:4860::8888");
  for (const char* text : {"3.2.1.in-addr.arpa", "5.4.3.2.1.in-addr.arpa", "256.3.2.1.in-addr.arpa",
                           "in-addr.arpa", "1.2.3.4", "x.ip6.arpa", "04.3.2.1.in-addr.arpa"}) {
    EXPECT_FALSE(reverse_address(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace cofferdam::egressproxy::dns
