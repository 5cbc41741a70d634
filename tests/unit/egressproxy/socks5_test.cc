#include "egressproxy/socks5.h"

#include <gtest/gtest.h>

namespace cofferdam::egressproxy::socks {
namespace {

using policy::Reason;

std::string raw(std::initializer_list<int> bytes) {
  std::string out;
  for (const int byte : bytes) out += static_cast<char>(byte);
  return out;
}

std::string domain(std::string_view name, int port = 443) {
  std::string out = raw({5, 1, 0, 3, static_cast<int>(name.size())});
  out += name;
  return out + raw({port >> 8, port & 0xff});
}

TEST(Socks5, GreetingOffersNoAuthentication) {
  EXPECT_TRUE(parse_greeting(raw({5, 1, 0})).no_authentication);
  EXPECT_TRUE(parse_greeting(raw({5, 2, 2, 0})).no_authentication);
  EXPECT_EQ(parse_greeting(raw({5, 2, 2, 0, 5, 1})).length, 4U);
  EXPECT_FALSE(parse_greeting(raw({5, 1, 2})).no_authentication);
  EXPECT_FALSE(parse_greeting(raw({5, 0})).no_authentication);
  EXPECT_EQ(parse_greeting(raw({5, 0})).state, State::kComplete);
  EXPECT_EQ(parse_greeting(raw({4, 1, 0})).state, State::kRefused);
  EXPECT_EQ(write_method(true), raw({5, 0}));
  EXPECT_EQ(write_method(false), raw({5, 0xff}));
}

TEST(Socks5, MessagesWaitForTheirLastByte) {
  const std::string greeting = raw({5, 3, 0, 1, 2});
  for (std::size_t size = 0; size < greeting.size(); ++size) {
    EXPECT_EQ(parse_greeting(greeting.substr(0, size)).state, State::kNeedMore) << size;
  }
  std::string v6 = raw({5, 1, 0, 4}) + std::string(16, '\x20') + raw({0, 80});
  for (const std::string& whole :
       {domain("a.example.com"), raw({5, 1, 0, 1, 8, 8, 8, 8, 1, 2}), v6}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_EQ(parse_request(whole.substr(0, size)).state, State::kNeedMore) << size;
    }
    const Request request = parse_request(whole + "first bytes");
    EXPECT_EQ(request.state, State::kComplete);
    EXPECT_EQ(request.length, whole.size());
  }
}

TEST(Socks5, HostsAreReadInTheirCanonicalForm) {
  const auto endpoint = [](const std::string& request) {
    const Request parsed = parse_request(request);
    return parsed.endpoint ? parsed.endpoint->text() : std::string(policy::to_text(parsed.reason));
  };
  EXPECT_EQ(endpoint(domain("a.example.com")), "a.example.com:443");
  EXPECT_EQ(endpoint(domain("A.Example.COM.", 80)), "a.example.com:80");
  EXPECT_EQ(endpoint(domain("my_bucket.example.com")), "my_bucket.example.com:443");
  EXPECT_EQ(endpoint(raw({5, 1, 0, 1, 93, 184, 216, 34, 0, 80})), "93.184.216.34:80");
  EXPECT_EQ(endpoint(raw(
                {5, 1, 0, 4, 0x26, 6, 0x28, 0, 2, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x34, 1, 187})),
            "[2606:2800:220::34]:443");
  // An IPv4-mapped address is the IPv4 address.
  EXPECT_EQ(
      endpoint(raw({5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1, 0, 80})),
      "127.0.0.1:80");
  // A domain that spells an address is that address, not a name.
  EXPECT_EQ(endpoint(domain("169.254.169.254", 80)), "169.254.169.254:80");
  EXPECT_EQ(endpoint(domain("::1", 80)), "[::1]:80");
  EXPECT_EQ(endpoint(domain("[::1]", 80)), "[::1]:80");
  EXPECT_EQ(endpoint(domain("::ffff:a9fe:a9fe", 80)), "169.254.169.254:80");
}

TEST(Socks5, OtherSpellingsAreNoHost) {
  const std::string names[] = {"0x7f.1",
                               "127.1",
                               "2130706433",
                               "0177.0.0.1",
                               "127.0.0.1.",
                               "1.2.3",
                               "fe80::1%eth0",
                               "[example.com]",
                               "[127.0.0.1]",
                               "a..b",
                               ".",
                               "a b.example",
                               "user@a.example",
                               "a.example:443",
                               "a.example/",
                               std::string("a\0.example", 10),
                               "a\r\n.example",
                               "caf\xc3\xa9.example",
                               "%61.example",
                               std::string(64, 'a') + ".example",
                               std::string(255, 'a')};
  for (const std::string& name : names) {
    const Request request = parse_request(domain(name));
    EXPECT_EQ(request.state, State::kRefused) << name;
    EXPECT_EQ(request.reply, Reply::kFailed) << name;
    EXPECT_EQ(request.reason, Reason::kNameInvalid) << name;
  }
  // Refused before its text has come.
  EXPECT_EQ(parse_request(raw({5, 1, 0, 3, 0})).reason, Reason::kNameInvalid);
}

TEST(Socks5, WhatIsNotConnectIsRefusedProperly) {
  struct Case {
    std::string request;
    Reply reply;
    Reason reason;
  };
  const Case cases[] = {
      {raw({5, 2, 0, 1, 8, 8, 8, 8, 0, 80}), Reply::kCommandNotSupported,
       Reason::kUnsupported},  // BIND
      {raw({5, 3, 0, 1, 0, 0, 0, 0, 0, 0}), Reply::kCommandNotSupported,
       Reason::kUnsupported},                                                     // UDP ASSOCIATE
      {raw({5, 0xf0, 0, 3}), Reply::kCommandNotSupported, Reason::kUnsupported},  // Tor's resolve
      {raw({5, 0}), Reply::kCommandNotSupported, Reason::kUnsupported},
      {raw({5, 1, 0, 2}), Reply::kAddressTypeNotSupported, Reason::kUnsupported},
      {raw({5, 1, 0, 0}), Reply::kAddressTypeNotSupported, Reason::kUnsupported},
      {raw({5, 1, 0, 0xff}), Reply::kAddressTypeNotSupported, Reason::kUnsupported},
      {raw({5, 1, 7, 1, 8, 8, 8, 8, 0, 80}), Reply::kFailed, Reason::kMalformed},
      {raw({4, 1, 0, 80}), Reply::kFailed, Reason::kMalformed},
      {raw({5, 1, 0, 1, 8, 8, 8, 8, 0, 0}), Reply::kFailed, Reason::kMalformed},  // port 0
  };
  for (const Case& c : cases) {
    const Request request = parse_request(c.request);
    EXPECT_EQ(request.state, State::kRefused);
    EXPECT_EQ(request.reply, c.reply);
    EXPECT_EQ(request.reason, c.reason);
  }
}

TEST(Socks5, RepliesTellDenialsFromFailures) {
  EXPECT_EQ(write_reply(Reply::kNotAllowed), raw({5, 2, 0, 1, 0, 0, 0, 0, 0, 0}));
  struct Case {
    Reason reason;
    Reply reply;
  };
  for (const Case& c : {Case{Reason::kNoRule, Reply::kNotAllowed},
                        {Reason::kDeniedByRule, Reply::kNotAllowed},
                        {Reason::kIpLiteral, Reply::kNotAllowed},
                        {Reason::kMetadataAddress, Reply::kNotAllowed},
                        {Reason::kPortNotAllowed, Reply::kNotAllowed},
                        {Reason::kQuotaExceeded, Reply::kNotAllowed},
                        {Reason::kNameInvalid, Reply::kFailed},
                        {Reason::kTooManyConnections, Reply::kFailed},
                        {Reason::kResolveFailed, Reply::kHostUnreachable},
                        {Reason::kNoAddress, Reply::kHostUnreachable},
                        {Reason::kConnectFailed, Reply::kRefused},
                        {Reason::kResolveTimeout, Reply::kExpired},
                        {Reason::kDeadline, Reply::kExpired},
                        {Reason::kAllowed, Reply::kSucceeded}}) {
    EXPECT_EQ(reply_for(c.reason), c.reply) << policy::to_text(c.reason);
  }
}

}  // namespace
}  // namespace cofferdam::egressproxy::socks
