#include "egressproxy/first_bytes.h"

#include <gtest/gtest.h>

#include "egressproxy/dns_wire.h"

namespace cofferdam::egressproxy {
namespace {

using dns::put_u16;
using State = ClientHello::State;

std::string extension(std::uint16_t type, std::string_view data) {
  std::string out;
  put_u16(out, type);
  put_u16(out, static_cast<std::uint16_t>(data.size()));
  out += data;
  return out;
}

std::string server_name(std::string_view name) {
  std::string entry(1, '\0');
  put_u16(entry, static_cast<std::uint16_t>(name.size()));
  entry += name;
  std::string list;
  put_u16(list, static_cast<std::uint16_t>(entry.size()));
  return extension(0, list + entry);
}

// The handshake message.
std::string hello_message(std::string_view extensions) {
  std::string body = "\x03\x03" + std::string(32, 'r') + std::string(1, '\0');
  body += std::string("\0\x02\x13\x01\x01\0", 6);
  put_u16(body, static_cast<std::uint16_t>(extensions.size()));
  body += extensions;
  std::string message("\x01\0", 2);
  put_u16(message, static_cast<std::uint16_t>(body.size()));
  return message + body;
}

std::string records(std::string_view message, std::size_t size) {
  std::string out;
  for (std::size_t at = 0; at < message.size(); at += size) {
    const std::string_view piece = message.substr(at, size);
    out += "\x16\x03\x01";
    put_u16(out, static_cast<std::uint16_t>(piece.size()));
    out += piece;
  }
  return out;
}

TEST(ClientHello, GivesTheServerName) {
  const std::string message = hello_message(extension(0xfe0d, "x") + server_name("a.example.com"));
  for (const std::size_t size : {16000U, 100U, 7U, 1U}) {
    const ClientHello hello = parse_client_hello(records(message, size));
    ASSERT_EQ(hello.state, State::kComplete) << size;
    EXPECT_EQ(hello.server_name, "a.example.com");
    EXPECT_TRUE(hello.encrypted_hello);
  }
}

TEST(ClientHello, WaitsForEveryMissingByte) {
  const std::string whole = records(hello_message(server_name("a.example.com")), 40);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(parse_client_hello(whole.substr(0, size)).state, State::kNeedMore) << size;
  }
  EXPECT_EQ(parse_client_hello(whole).state, State::kComplete);
}

TEST(ClientHello, IsJudgedAlikeInWhateverPiecesItComes) {
  const std::string message = hello_message(server_name("a.example.com"));
  const std::string two = records(message + "another message", 16000);
  // Cut behind the first message: its record claims more.
  EXPECT_EQ(parse_client_hello(two.substr(0, 5 + message.size())).state, State::kMalformed);
  EXPECT_EQ(parse_client_hello(two).state, State::kMalformed);
}

TEST(ClientHello, HasNoNameWithoutTheExtension) {
  const ClientHello hello = parse_client_hello(records(hello_message(extension(10, "ab")), 1000));
  EXPECT_EQ(hello.state, State::kComplete);
  EXPECT_FALSE(hello.server_name.has_value());
}

TEST(ClientHello, RefusesWhatIsNotOne) {
  const std::string sslv2("\x80\x2e\x01\x03\x01", 5);
  EXPECT_EQ(parse_client_hello(sslv2).state, State::kNotTls);
  EXPECT_EQ(parse_client_hello("GET / HTTP/1.1\r\n").state, State::kNotTls);
  EXPECT_EQ(parse_client_hello(std::string("\x16\x03\x01\0\0", 5)).state, State::kNotTls);
  EXPECT_EQ(parse_client_hello(std::string("\x16\x02\x01\0\x05hello", 10)).state, State::kNotTls);
  EXPECT_EQ(parse_client_hello(std::string("\x16\x03\x01\0\x05hello", 10)).state, State::kNotTls);
  EXPECT_EQ(parse_client_hello(std::string("\x16\x03\x01\0\x05\x02\0\0\0\0", 10)).state,
            State::kNotTls);
}

TEST(ClientHello, RefusesBrokenOnes) {
  const auto state = [](const std::string& message) {
    return parse_client_hello(records(message, 16000)).state;
  };
  EXPECT_EQ(state(hello_message(server_name("a.b") + server_name("c.d"))), State::kMalformed);
  EXPECT_EQ(state(hello_message(server_name(""))), State::kMalformed);
  EXPECT_EQ(state(hello_message(extension(0, ""))), State::kMalformed);
  EXPECT_EQ(state(hello_message(extension(0, std::string("\0\x05\0\0\x01", 5)))),
            State::kMalformed);
  EXPECT_EQ(state(hello_message("xyz")), State::kMalformed);
  EXPECT_EQ(state(hello_message(server_name("a.b")) + "more"), State::kMalformed);
  std::string two_names;
  put_u16(two_names, 12);
  two_names += std::string(
                   "\0\0\x03"
                   "a.b",
                   6) +
               std::string(
                   "\0\0\x03"
                   "c.d",
                   6);
  EXPECT_EQ(state(hello_message(extension(0, two_names))), State::kMalformed);
  // Longer than anybody's hello.
  EXPECT_EQ(parse_client_hello(std::string("\x16\x03\x01\x10\0\x01\x01\0\0", 9)).state,
            State::kMalformed);
  // Another record type in the middle.
  const std::string message = hello_message(server_name("a.b"));
  std::string mixed = records(message.substr(0, 20), 20);
  mixed += std::string("\x15\x03\x01\0\x02\x01\0", 7);
  EXPECT_EQ(parse_client_hello(mixed).state, State::kMalformed);
}

TEST(Recognise, ByTheFirstBytes) {
  EXPECT_EQ(recognise(""), Opening::kNeedMore);
  EXPECT_EQ(recognise("\x16"), Opening::kTls);
  EXPECT_EQ(recognise("\x05\x01"), Opening::kSocks5);
  EXPECT_EQ(recognise("\x04\x01"), Opening::kSocks4);
  EXPECT_EQ(recognise("GET / HTT"), Opening::kNeedMore);
  EXPECT_EQ(recognise("GET / HTTP/1.1\r\n"), Opening::kHttp);
  EXPECT_EQ(recognise("PRI * HTTP/2.0\r\n"), Opening::kHttp);
  EXPECT_EQ(recognise("SSH-2.0-x\r\n"), Opening::kOther);
  EXPECT_EQ(recognise("\x80\x2e\x01"), Opening::kOther);
  EXPECT_EQ(recognise(std::string("G\0T", 3)), Opening::kOther);
  EXPECT_EQ(recognise("G" + std::string(9000, 'x')), Opening::kHttp);
  EXPECT_EQ(recognise(" GET / HTTP/1.1\r\n"), Opening::kOther);
}

class NarrowTest : public testing::Test {
 protected:
  policy::EgressPolicy policy = *policy::EgressPolicy::parse(
      R"({"version":1,"sandbox":"","operation":"","manifest":"","mode":"enforce","rules":[
          {"id":"a","rule":"a.example.com"},{"id":"b","rule":"b.example.com"},
          {"id":"p","rule":"http://plain.example.com"},{"id":"l","rule":"8.8.8.8"}]})");
  std::vector<policy::Host> hosts = {*policy::Host::parse("a.example.com"),
                                     *policy::Host::parse("plain.example.com")};
  policy::Reason narrow(std::optional<std::string> name, std::uint16_t port = 443) {
    ClientHello hello;
    hello.state = State::kComplete;
    hello.server_name = std::move(name);
    return narrow_by_hello(policy, hosts, port, hello).decision.reason;
  }
};

TEST_F(NarrowTest, TheNameMustBeOneOfThePinned) {
  EXPECT_EQ(narrow("a.example.com"), policy::Reason::kAllowed);
  EXPECT_EQ(narrow("A.EXAMPLE.com."), policy::Reason::kAllowed);
  EXPECT_EQ(narrow("b.example.com"), policy::Reason::kSniMismatch);
  EXPECT_EQ(narrow("evil.example.net"), policy::Reason::kSniMismatch);
  EXPECT_EQ(narrow("plain.example.com"), policy::Reason::kPortNotAllowed);
  EXPECT_EQ(narrow("a.example.com", 8443), policy::Reason::kPortNotAllowed);
  EXPECT_EQ(narrow("8.8.8.8"), policy::Reason::kNameInvalid);
  EXPECT_EQ(narrow(std::string("a.example.com\0.evil", 19)), policy::Reason::kNameInvalid);
}

TEST_F(NarrowTest, WithoutANameOnlyAListedLiteralIsReached) {
  EXPECT_EQ(narrow(std::nullopt), policy::Reason::kSniMissing);
  hosts.push_back(*policy::Host::parse("8.8.8.8"));
  EXPECT_EQ(narrow(std::nullopt), policy::Reason::kAllowed);
}

TEST_F(NarrowTest, ABrokenHelloIsMalformed) {
  ClientHello hello;
  hello.state = State::kMalformed;
  EXPECT_EQ(narrow_by_hello(policy, hosts, 443, hello).decision.reason, policy::Reason::kMalformed);
}

}  // namespace
}  // namespace cofferdam::egressproxy
