// The Docker client: its pure parts, and one exchange with a fake daemon on a real Unix socket.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "common/os/files.h"
#include "common/os/pipes.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/daemon_address.h"
#include "orchestrator/engine/docker/seccomp_profile.h"
#include "orchestrator/engine/docker/tar_archive.h"

namespace cofferdam::orchestrator::docker {
namespace {

using std::chrono::milliseconds;

TEST(DaemonAddress, OnlySocketsOfThisMachineAreTaken) {
  struct Case {
    std::optional<std::string> value;
    std::string path;  // empty: refused
  };
  const Case cases[] = {{std::nullopt, "/var/run/docker.sock"},
                        {"", "/var/run/docker.sock"},
                        {"unix:///run/other.sock", "/run/other.sock"},
                        {"unix://relative.sock", ""},
                        {"unix://", ""},
                        {"tcp://192.0.2.1:2375", ""},
                        {"ssh://somebody@host.example", ""},
                        {"/run/docker.sock", ""},
                        {"unix:///" + std::string(200, 'x'), ""}};
  for (const Case& item : cases) {
    const auto address = parse_daemon_address(item.value);
    ASSERT_EQ(address.ok(), !item.path.empty()) << item.value.value_or("unset");
    EXPECT_EQ(address.ok() ? *address : "", item.path);
  }
}

TEST(ApiVersion, IsTheOldestThatBothSpeak) {
  struct Case {
    const char* newest;
    const char* oldest;
    const char* chosen;  // empty: refused
  };
  const Case cases[] = {{"1.41", "1.12", "1.41"},
                        {"1.51", "1.24", "1.41"},
                        {"1.52", "1.44", "1.44"},
                        {"1.40", "1.12", ""},
                        {"2.0", "2.0", ""},
                        {"1.x", "1.12", ""},
                        {"", "", ""}};
  for (const Case& item : cases) {
    const auto chosen =
        choose_api_version({{"ApiVersion", item.newest}, {"MinAPIVersion", item.oldest}});
    EXPECT_EQ(chosen.ok() ? *chosen : "", item.chosen) << item.newest;
  }
  EXPECT_FALSE(choose_api_version(Json::array()).ok());
}

TEST(ImageFacts, VolumesAndVariablesAreRead) {
  const auto image = parse_image({{"Id", "sha256:1"},
                                  {"Config",
                                   {{"Env", {"PATH=/bin", "A=b=c", "=bad", "NOVALUE"}},
                                    {"Volumes", {{"/data", Json::object()}}},
                                    {"Labels", {{"a", "b"}}}}}});
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->id, "sha256:1");
  EXPECT_EQ(image->volumes, std::vector<std::string>{"/data"});
  const std::map<std::string, std::string> env{{"A", "b=c"}, {"PATH", "/bin"}};
  EXPECT_EQ(image->env, env);
  EXPECT_EQ(image->labels.at("a"), "b");
  EXPECT_TRUE(
      parse_image({{"Id", "x"}, {"Config", {{"Env", nullptr}, {"Volumes", nullptr}}}}).ok());
  EXPECT_FALSE(parse_image({{"Config", Json::object()}}).ok());
  EXPECT_FALSE(parse_image({{"Id", "x"}, {"Config", {{"Env", {1}}}}}).ok());
}

TEST(PercentEncoding, LeavesNothingThatCouldEndAPath) {
  EXPECT_EQ(percent_encode("a/b:c?d#e f%"), "a%2Fb%3Ac%3Fd%23e%20f%25");
  EXPECT_EQ(percent_encode("Az09-._~"), "Az09-._~");
}

TEST(TarArchive, HeaderAndPaddingAreUstars) {
  const std::string content(700, 'x');
  const auto tar = make_tar_of_program("init", content);
  ASSERT_TRUE(tar.ok());
  ASSERT_EQ(tar->size(), 512U + 1024U + 1024U);
  EXPECT_EQ(std::strcmp(tar->data(), "init"), 0);
  EXPECT_EQ(tar->substr(100, 8), std::string("0000555\0", 8));
  EXPECT_EQ(tar->substr(124, 12), std::string("00000001274\0", 12));
  EXPECT_EQ(tar->substr(257, 8), std::string("ustar\00000", 8));
  unsigned int sum = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    sum += (i >= 148 && i < 156) ? ' ' : static_cast<unsigned char>((*tar)[i]);
  }
  EXPECT_EQ(std::strtoul(tar->substr(148, 6).c_str(), nullptr, 8), sum);
  EXPECT_EQ(tar->substr(512, 700), content);
  EXPECT_EQ(tar->find_first_not_of('\0', 512 + 700), std::string::npos);
  EXPECT_FALSE(make_tar_of_program("/init", "").ok());
  EXPECT_FALSE(make_tar_of_program(std::string(101, 'a'), "").ok());
}

TEST(SeccompProfile, DockersFilterLetsEventsThroughAndNothingUnnamed) {
  const Json policy{{"version", 1},
                    {"allow", {"read"}},
                    {"allow_when", {{{"syscall", "socket"}, {"args", Json::array()}}}},
                    {"unavailable", {"clone3"}},
                    {"refuse_when", {{{"syscall", "ioctl"}, {"args", Json::array()}}}},
                    {"refuse", {"mount"}}};
  const auto profile = make_seccomp_profile(policy);
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->at("defaultAction"), "SCMP_ACT_ERRNO");
  const Json& calls = profile->at("syscalls");
  EXPECT_EQ(calls.at(0).at("names"), Json({"ioctl", "mount", "read", "socket"}));
  EXPECT_EQ(calls.at(0).at("action"), "SCMP_ACT_ALLOW");
  EXPECT_EQ(calls.at(1).at("names"), Json::array({"clone3"}));
  EXPECT_EQ(calls.at(1).at("errnoRet"), ENOSYS);
  EXPECT_FALSE(make_seccomp_profile({{"version", 2}}).ok());
  EXPECT_FALSE(make_seccomp_profile({{"version", 1}}).ok());
}

// A daemon that accepts one connection, reads the request's head and answers with fixed bytes.
class FakeDaemon final {
 public:
  explicit FakeDaemon(std::string answer) : answer_(std::move(answer)) {
    auto directory = os::TempDir::create("/tmp", "cofferdam-docker-");
    EXPECT_TRUE(directory.ok());
    directory_.emplace(std::move(directory).value());
    path_ = (directory_->path() / "sock").string();
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeDaemon() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;
  const std::string& path() const { return path_; }
  std::string request() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    thread_ = std::thread([] {});
    return request_;
  }

 private:
  void serve() {
    const os::UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
    if (!peer) return;
    char buffer[4096];
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::read(peer.get(), buffer, sizeof buffer);
      if (got <= 0) return;
      request_.append(buffer, static_cast<std::size_t>(got));
    }
    if (answer_.empty()) {  // silence, until the client gives up
      (void)!::read(peer.get(), buffer, sizeof buffer);
      return;
    }
    (void)os::write_all(peer.get(), answer_).ok();
  }
  std::string answer_;
  std::string path_;
  std::string request_;
  std::optional<os::TempDir> directory_;
  os::UniqueFd listener_;
  std::thread thread_;
};

std::string answer(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST(HttpExchange, ChunkedAnswersAreJoined) {
  FakeDaemon daemon(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  const auto reply = http_exchange(daemon.path(), {"GET", "/x?y=1", "", ""}, {});
  ASSERT_TRUE(reply.ok()) << reply.error().message();
  EXPECT_EQ(reply->status, 200U);
  EXPECT_EQ(reply->body, "abcde");
  EXPECT_TRUE(daemon.request().starts_with("GET /x?y=1 HTTP/1.1\r\n"));
}

TEST(HttpExchange, ASilentDaemonIsGivenUp) {
  FakeDaemon daemon("");
  const auto reply = http_exchange(daemon.path(), {"GET", "/", "", ""}, {milliseconds(100), -1});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().error_number(), ETIMEDOUT);
}

TEST(HttpExchange, AnInterruptGivesUp) {
  FakeDaemon daemon("");
  auto pipe = os::make_pipe();
  ASSERT_TRUE(pipe.ok());
  ASSERT_TRUE(os::write_all(pipe->write.get(), "x").ok());
  const auto reply = http_exchange(daemon.path(), {"GET", "/", "", ""},
                                   {std::chrono::seconds(20), pipe->read.get()});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().error_number(), EINTR);
}

TEST(HttpExchange, WhatIsNoHttpIsAnError) {
  FakeDaemon daemon("hello\r\n\r\n");
  EXPECT_FALSE(http_exchange(daemon.path(), {"GET", "/", "", ""}, {}).ok());
}

TEST(HttpExchange, NoDaemonIsAnErrorWithItsErrno) {
  const auto reply = http_exchange("/nonexistent/sock", {"GET", "/", "", ""}, {});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().error_number(), ENOENT);
}

TEST(DockerClient, ConnectTellsTheRemedy) {
  const auto client = DockerClient::connect("/nonexistent/sock");
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().message().find("Remedy"), std::string::npos);
}

TEST(DockerClient, ConnectNegotiates) {
  FakeDaemon daemon(answer(R"({"Version":"27.1","ApiVersion":"1.46","MinAPIVersion":"1.24"})"));
  const auto client = DockerClient::connect(daemon.path());
  ASSERT_TRUE(client.ok()) << client.error().message();
  EXPECT_EQ(client->server_version(), "27.1");
}

}  // namespace
}  // namespace cofferdam::orchestrator::docker
