#include "egressproxy/http_head.h"

#include <gtest/gtest.h>

#include "egressproxy/http_body.h"
#include "egressproxy/http_target.h"

namespace cofferdam::egressproxy::http {
namespace {

std::string with(std::string_view fields,
                 std::string_view line = "GET http://a.example/ HTTP/1.1") {
  return std::string(line) + "\r\nHost: a.example\r\n" + std::string(fields) + "\r\n";
}

int refused(const std::string& head) {
  const HeadScan scan = scan_head(head);
  if (scan.state == HeadScan::State::kRefused) return scan.error.status;
  if (scan.state == HeadScan::State::kNeedMore) return -1;
  const RequestResult result = parse_request(std::string_view(head).substr(scan.skip, scan.length));
  return result.head ? 0 : result.error.status;
}

TEST(RequestHead, RefusesWhatBeastWouldTake) {
  struct Case {
    std::string head;
    int status;
  };
  const Case cases[] = {
      {with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
      {with("Content-Length: 5\r\nTransfer-Encoding: gzip\r\n"), 400},
      {with("Transfer-Encoding: gzip\r\n"), 501},
      {with("Transfer-Encoding: xchunked\r\n"), 501},
      {with("Transfer-Encoding: chunked, identity\r\n"), 501},
      {with("Transfer-Encoding: identity\r\n"), 501},
      {with("Transfer-Encoding: chunked, chunked\r\n"), 501},
      {with("Transfer-Encoding: \x0b"
            "chunked\r\n"),
       400},
      {with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\n", "POST http://a.example/ HTTP/1.0"), 400},
      {with("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
      {with("Content-Length: 5, 5\r\n"), 400},
      {with("Content-Length: +5\r\n"), 400},
      {with("Content-Length: -1\r\n"), 400},
      {with("Content-Length: 0x5\r\n"), 400},
      {with("Content-Length: 5 5\r\n"), 400},
      {with("Content-Length: 05\r\n"), 400},
      {with("Content-Length:\r\n"), 400},
      {with("Content-Length: 9223372036854775808\r\n"), 400},
      {with("Content-Length: 99999999999999999999\r\n"), 400},
      {with("Host: a.example\r\n"), 400},
      {with("Host: b.example\r\n"), 400},
      {"GET http://a.example/ HTTP/1.1\r\n\r\n", 400},
      {"GET http://a.example/ HTTP/1.1\r\nHost:\r\n\r\n", 400},
      {with("X: a\r\n b\r\n"), 400},
      {with("X: a\r\n\tb\r\n"), 400},
      {"GET http://a.example/ HTTP/1.1\r\n Host: a.example\r\n\r\n", 400},
      {with("X : a\r\n"), 400},
      {with(": a\r\n"), 400},
      {with("no colon\r\n"), 400},
      {with("X: a\rb\r\n"), 400},
      {with(std::string("X: a\0b\r\n", 8)), 400},
      {with("X: a\x01"
            "b\r\n"),
       400},
      {"GET http://a.example/ HTTP/1.1\nHost: a.example\n\n", 400},
      {"GET http://a.example/ HTTP/1.1\r\nHost: a.example\n\r\n", 400},
      {with("", "GET http://a.example/\xe4 HTTP/1.1"), 400},
      {with("", "GET http://a.example/#f HTTP/1.1"), 400},
      {with("", "GET http://a.example/ x HTTP/1.1"), 400},
      {with("", "GET  http://a.example/ HTTP/1.1"), 400},
      {with("", "G(T http://a.example/ HTTP/1.1"), 400},
      {with("", "GET http://a.example/ HTTP/2.0"), 505},
      {with("", "GET http://a.example/ HTTP/1.2"), 505},
      {with("", "GET http://a.example/ http/1.1"), 400},
      {with("", "GET http://a.example/"), 400},
      {"\r\n\r\n", 400},
      {with("Expect: 200-maybe\r\n"), 417},
      {with("Connection: close, Host\r\n"), 400},
      {with("Connection: Content-Length\r\n"), 400},
      {with("Connection: Authorization\r\n"), 400},
      {with("X: " + std::string(33000, 'a') + "\r\n"), 431},
      {"GET /" + std::string(9000, 'a'), 414},
  };
  for (const Case& c : cases) EXPECT_EQ(refused(c.head), c.status) << c.head.substr(0, 200);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X-" + std::to_string(i) + ": a\r\n";
  EXPECT_EQ(refused(with(many)), 431);
}

TEST(RequestHead, TakesWhatClientsSend) {
  const auto parse = [](const std::string& head) {
    const HeadScan scan = scan_head(head);
    EXPECT_EQ(scan.state, HeadScan::State::kComplete) << head;
    auto result = parse_request(std::string_view(head).substr(scan.skip, scan.length));
    EXPECT_TRUE(result.head.has_value()) << head << result.error.why;
    return result.head.value_or(RequestHead{});
  };
  EXPECT_EQ(parse(with("")).framing.kind, BodyKind::kNone);
  EXPECT_TRUE(parse(with("")).keep_alive);
  EXPECT_FALSE(parse(with("Connection: close\r\n")).keep_alive);
  EXPECT_FALSE(parse(with("", "GET / HTTP/1.0")).keep_alive);
  EXPECT_TRUE(parse(with("Connection: Keep-Alive\r\n", "GET / HTTP/1.0")).keep_alive);
  EXPECT_EQ(parse(with("Content-Length: 12\r\n")).framing.length, 12U);
  EXPECT_EQ(parse(with("Content-Length: \t 0 \r\n")).framing.kind, BodyKind::kLength);
  EXPECT_EQ(parse(with("Transfer-Encoding:  Chunked \r\n")).framing.kind, BodyKind::kChunked);
  EXPECT_TRUE(parse(with("Expect: 100-Continue\r\n")).expects_continue);
  EXPECT_TRUE(parse(with("Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n")).websocket);
  EXPECT_FALSE(parse(with("Upgrade: websocket\r\n")).websocket);
  EXPECT_FALSE(parse(with("Connection: Upgrade\r\nUpgrade: h2c\r\n")).websocket);
  EXPECT_EQ(parse(with("X: caf\xe9\r\n")).fields.back().value, "caf\xe9");
  EXPECT_EQ(parse("\r\n" + with("")).host, "a.example");
  EXPECT_EQ(parse(with("", "PROPFIND /x HTTP/1.1")).method, "PROPFIND");
}

TEST(RequestHead, WaitsForTheEnd) {
  const std::string whole = with("X: y\r\n");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(scan_head(std::string_view(whole).substr(0, size)).state, HeadScan::State::kNeedMore);
  }
  EXPECT_EQ(scan_head(whole + "GET ").length, whole.size());
}

TEST(ResponseHead, RefusesBrokenOnes) {
  for (const char* head :
       {"HTTP/1.1 200\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 1000 x\r\n\r\n",
        "HTTP/1.1 600 x\r\n\r\n", "HTTP/1.1 20 x\r\n\r\n", "HTTP/2.0 200 x\r\n\r\n",
        "HTTP/1.1 200x\r\n\r\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    EXPECT_FALSE(parse_response(head).ok()) << head;
  }
}

TEST(ResponseHead, KnowsWhichHaveNoBody) {
  const auto kind = [](const char* head, const char* method) {
    return response_framing(*parse_response(head), method).kind;
  };
  EXPECT_EQ(kind("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET"), BodyKind::kLength);
  EXPECT_EQ(kind("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD"), BodyKind::kNone);
  EXPECT_EQ(kind("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", "GET"), BodyKind::kNone);
  EXPECT_EQ(kind("HTTP/1.1 204 No Content\r\n\r\n", "GET"), BodyKind::kNone);
  EXPECT_EQ(kind("HTTP/1.1 100 Continue\r\n\r\n", "POST"), BodyKind::kNone);
  EXPECT_EQ(kind("HTTP/1.1 200 \r\n\r\n", "GET"), BodyKind::kUntilClose);
  EXPECT_EQ(kind("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET"),
            BodyKind::kChunked);
}

TEST(Heads, AreWrittenAnew) {
  const RequestHead request =
      *parse_request(
           with(
               "Proxy-Authorization: Basic x\r\nConnection: X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\n"
               "Keep-Alive: 5\r\nX-Kept:   y \r\nContent-Length: 3\r\n",
               "POST http://a.example/ HTTP/1.1"))
           .head;
  EXPECT_EQ(write_request(request, "a.example", "/p?q"),
            "POST /p?q HTTP/1.1\r\nHost: a.example\r\nX-Kept: y\r\nContent-Length: 3\r\n\r\n");
  const ResponseHead response = *parse_response(
      "HTTP/1.1 200 Fine\r\nConnection: close\r\nTrailer: X\r\nX: y\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  EXPECT_EQ(write_response(response, response.framing, true, 1),
            "HTTP/1.1 200 Fine\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n");
  const ResponseHead head = *parse_response("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
  EXPECT_EQ(write_response(head, response_framing(head, "HEAD"), true, 1),
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
  const ResponseHead empty = *parse_response("HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n");
  EXPECT_EQ(write_response(empty, response_framing(empty, "GET"), true, 1),
            "HTTP/1.1 204 No\r\n\r\n");
}

TEST(AbsoluteTarget, TakesHttpOnly) {
  struct Case {
    const char* target;
    const char* endpoint;  // null: refused
    const char* path;
  };
  const Case cases[] = {{"http://a.example/x?y", "a.example:80", "/x?y"},
                        {"HTTP://A.example.", "a.example:80", "/"},
                        {"http://a.example:8080?q", "a.example:8080", "/?q"},
                        {"http://a.example:/", "a.example:80", "/"},
                        {"http://[::1]:8080/", "[::1]:8080", "/"},
                        {"http://a.example/@b", "a.example:80", "/@b"},
                        {"https://a.example/", nullptr, ""},
                        {"ftp://a.example/", nullptr, ""},
                        {"file:///etc/passwd", nullptr, ""},
                        {"urn:x", nullptr, ""},
                        {"ws://a.example/", nullptr, ""},
                        {"http://", nullptr, ""},
                        {"http:///x", nullptr, ""},
                        {"http://user@a.example/", nullptr, ""},
                        {"http://a.example:80@evil.example/", nullptr, ""},
                        {"http://evil.example\\@a.example/", nullptr, ""},
                        {"http://a.example:0/", nullptr, ""},
                        {"http://a.example:65616/", nullptr, ""},
                        {"http://a%2eexample/", nullptr, ""},
                        {"http://0x7f.1/", nullptr, ""}};
  for (const Case& c : cases) {
    const AbsoluteResult result = parse_absolute_target(c.target);
    ASSERT_EQ(result.target.has_value(), c.endpoint != nullptr) << c.target;
    if (!result.target) continue;
    EXPECT_EQ(result.target->endpoint.text(), c.endpoint);
    EXPECT_EQ(result.target->path, c.path);
  }
}

RequestHead request(std::string target, std::string host) {
  RequestHead head;
  head.method = "GET";
  head.target = std::move(target);
  head.host = std::move(host);
  return head;
}

TEST(Target, OfAProxyIsTheAuthorityThatHostAgreesWith) {
  const Site proxy{"http", true, {}, 80};
  EXPECT_TRUE(find_target(request("http://a.example/", "a.example"), proxy).target);
  EXPECT_TRUE(find_target(request("http://a.example/", "A.EXAMPLE.:80"), proxy).target);
  EXPECT_EQ(find_target(request("http://a.example/", "b.example"), proxy).refusal.status, 421);
  EXPECT_EQ(find_target(request("http://a.example/", "a.example:81"), proxy).refusal.status, 421);
  EXPECT_EQ(find_target(request("http://a.example/", "a.example,b"), proxy).refusal.status, 400);
  EXPECT_EQ(find_target(request("/", "a.example"), proxy).refusal.status, 400);
}

TEST(Target, OfASteeredConnectionIsOneOfItsHosts) {
  const Site site{"transparent",
                  false,
                  {*policy::Host::parse("a.example"), *policy::Host::parse("b.example")},
                  8080};
  EXPECT_EQ(find_target(request("/x", "b.example:8080"), site).target->endpoint.text(),
            "b.example:8080");
  EXPECT_EQ(find_target(request("/x", "a.example"), site).target->endpoint.text(),
            "a.example:8080");
  EXPECT_EQ(find_target(request("/x", "c.example"), site).refusal.status, 421);
  EXPECT_EQ(find_target(request("/x", "a.example:80"), site).refusal.status, 421);
  EXPECT_EQ(find_target(request("http://c.example/", "a.example"), site).refusal.status, 421);
  EXPECT_EQ(find_target(request("x", "a.example"), site).refusal.status, 400);
  EXPECT_EQ(find_target(request("http://a.example:8080/y", "a.example:8080"), site).target->path,
            "/y");
}

TEST(Chunks, AreReadInAnyPieces) {
  const std::string body = "5\r\nhello\r\n6;ext=\"1\"\r\n world\r\n000\r\nX: y\r\n\r\n";
  for (std::size_t step = 1; step <= body.size(); ++step) {
    ChunkReader reader;
    std::string content;
    std::string pending;
    auto state = ChunkReader::State::kMore;
    for (std::size_t at = 0; at < body.size(); at += step) {
      pending += body.substr(at, step);
      std::size_t used = 0;
      state = reader.read(pending, content, used);
      pending.erase(0, used);
    }
    EXPECT_EQ(state, ChunkReader::State::kDone) << step;
    EXPECT_EQ(content, "hello world");
    EXPECT_TRUE(pending.empty());
  }
}

TEST(Chunks, StopBehindTheirEnd) {
  ChunkReader reader;
  std::string content;
  std::size_t used = 0;
  EXPECT_EQ(reader.read("0\r\n\r\nGET / HTTP/1.1", content, used), ChunkReader::State::kDone);
  EXPECT_EQ(used, 5U);
}

TEST(Chunks, RefuseOtherSpellingsOfSize) {
  std::uint64_t size = 0;
  for (const char* line :
       {"", "+5", "0x5", "-1", " 5", "5 ;x", "5 ", "g", "12345678901234567", ";x", "5;\x01"}) {
    EXPECT_FALSE(parse_chunk_size(line, size)) << line;
  }
  EXPECT_TRUE(parse_chunk_size("fF", size));
  EXPECT_EQ(size, 255U);
  for (const char* body : {"5\nhello\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n",
                           "0\r\n x: y\r\n\r\n", "0\r\nno colon\r\n\r\n"}) {
    ChunkReader reader;
    std::string content;
    std::size_t used = 0;
    EXPECT_EQ(reader.read(body, content, used), ChunkReader::State::kMalformed) << body;
  }
}

}  // namespace
}  // namespace cofferdam::egressproxy::http
