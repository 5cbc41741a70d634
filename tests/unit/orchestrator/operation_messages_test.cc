#include "orchestrator/engine/operation_messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/base/json_text.h"
#include "common/os/files.h"
#include "common/os/memory_file.h"
#include "common/os/pipes.h"

namespace cofferdam::orchestrator {
namespace {

os::Packet through(const std::function<Status(int)>& send) {
  auto pair = os::make_packet_pair();
  EXPECT_TRUE(pair.ok());
  EXPECT_TRUE(send(pair->first.get()).ok());
  auto packet = os::receive_packet(pair->second.get());
  EXPECT_TRUE(packet.ok());
  return std::move(packet).value();
}

os::Packet raw(const Json& body, const std::string& fields, int more_fds) {
  return through([&](int socket) -> Status {
    TRY_ASSIGN(const os::UniqueFd file, os::make_memory_file("test", fields));
    std::vector<int> fds{file.get()};
    for (int i = 0; i < more_fds; ++i) fds.push_back(file.get());
    return os::send_packet(socket, canonical_json(body), fds);
  });
}

Json request() {
  return {{"type", "exec"},   {"terminal", false},     {"arguments", 2},
          {"tool", Json()},   {"directory", "/a"},     {"timeout_ms", 1500},
          {"approval", "id"}, {"who", "anna (uid 1)"}, {"checkpoint", Json()}};
}

TEST(OperationMessages, ARequestArrivesAsItWasSent) {
  ExecRequest sent;
  sent.argv = {"sh", "-c", "a b\nc", ""};
  sent.env = {"A=1", "ODD=\xff\xfe"};
  sent.directory = "/somewhere";
  sent.timeout = std::chrono::milliseconds(90);
  const auto null = os::open_file("/dev/null", O_RDONLY);
  ASSERT_TRUE(null.ok());
  const int fd = null->get();
  auto got = parse_exec(through([&](int s) { return send_exec(s, sent, {fd, fd, fd}); }));
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_EQ(got->request.argv, sent.argv);
  EXPECT_EQ(got->request.env, sent.env);
  EXPECT_EQ(got->request.directory, sent.directory);
  EXPECT_EQ(got->request.timeout, sent.timeout);
  EXPECT_EQ(got->stdio.size(), 3U);
}

TEST(OperationMessages, AnswersArriveAsTheyWereSent) {
  const std::vector<secrets::KnownSecret> secret{{"TOKEN", "v\xff\nalue"}};
  auto started =
      parse_started(through([&](int s) { return send_started(s, "id", secret, 4096, -1); }), false);
  ASSERT_TRUE(started.ok()) << started.error().message();
  EXPECT_EQ(started->operation, "id");
  ASSERT_EQ(started->secrets.size(), 1U);
  EXPECT_EQ(started->secrets[0].value, secret[0].value);
  for (const Ending ending :
       {Ending::kExited, Ending::kSignalled, Ending::kTimedOut, Ending::kBroken}) {
    const auto ended = parse_ended(through([&](int s) {
      return send_ended(s, {ending, 7, "why"});
    }));
    ASSERT_TRUE(ended.ok());
    EXPECT_EQ(ended->ending, ending);
    EXPECT_EQ(ended->status, 7);
    EXPECT_EQ(ended->message, "why");
  }
  const auto refused =
      parse_started(through([](int s) { return send_refused(s, "stopping"); }), false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "stopping");
}

TEST(OperationMessages, AHostileRequestIsRefused) {
  const std::string fields("sh\0-c\0A=1\0", 10);
  ASSERT_TRUE(parse_exec(raw(request(), fields, 3)).ok());  // the control
  const auto with = [](const char* key, Json value) {
    Json body = request();
    body[key] = std::move(value);
    return body;
  };
  for (const Json& body :
       {with("arguments", 0), with("arguments", 4), with("arguments", -1), with("arguments", "2"),
        with("terminal", true), with("timeout_ms", 0), with("timeout_ms", -5), with("type", "stop"),
        with("directory", 5), with("tool", 1), Json::object(), Json::array()}) {
    EXPECT_FALSE(parse_exec(raw(body, fields, 3)).ok()) << body.dump();
  }
  EXPECT_FALSE(parse_exec(raw(request(), fields, 2)).ok());
  EXPECT_FALSE(parse_exec(raw(request(), fields, 4)).ok());
  EXPECT_FALSE(parse_exec(raw(request(), "sh\0-c", 3)).ok());
  EXPECT_FALSE(parse_exec(raw(request(), std::string("sh\0-c\0novalue\0", 14), 3)).ok());
  EXPECT_FALSE(parse_exec(raw(request(), std::string("sh\0-c\0=1\0", 9), 3)).ok());
}

TEST(OperationMessages, OnlySignalsAreSignals) {
  for (const Json& number : {Json(0), Json(65), Json(-1), Json("9"), Json(1.5), Json()}) {
    const Json body{{"type", "signal"}, {"number", number}};
    EXPECT_FALSE(
        parse_signal(through([&](int s) { return os::send_packet(s, canonical_json(body)); })).ok())
        << body.dump();
  }
  const auto good = parse_signal(through([](int s) { return send_signal(s, 2); }));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 2);
}

}  // namespace
}  // namespace cofferdam::orchestrator
