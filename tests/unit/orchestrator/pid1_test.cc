// Process 1 driven over its socket: the static program itself, outside of a sandbox.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "common/base/json_text.h"
#include "common/os/fd_passing.h"
#include "common/os/files.h"
#include "common/os/pipes.h"
#include "common/os/process.h"
#include "orchestrator/engine/pid1_channel.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::orchestrator {
namespace {

class Pid1 : public testing::Test {
 protected:
  void SetUp() override {
    auto pair = os::make_packet_pair();
    ASSERT_TRUE(pair.ok());
    os::SpawnOptions options;
    options.argv = {COFFERDAM_INIT_PATH, "pid1"};
    options.fds = {{pair->second.get(), init::kSocketFd}};
    options.die_with_parent = true;
    auto process = os::ChildProcess::spawn(options);
    ASSERT_TRUE(process.ok()) << process.error().message();
    process_ = std::move(process).value();
    channel_.emplace(std::move(pair->first));
  }

  void install(bool terminal = false, const ProgramRules& rules = {}) {
    const auto policy = SeccompPolicy::built_in();
    ASSERT_TRUE(policy.ok());
    const auto programs = policy->compile();
    ASSERT_TRUE(programs.ok());
    auto done = channel_->set_up(*programs, terminal, rules, -1);
    ASSERT_TRUE(done.ok()) << done.error().message();
    setup_.emplace(std::move(done).value());
  }

  // Runs a shell line to its end; what it wrote is in out_.
  Result<WorkloadEnd> run(const std::vector<std::string>& argv,
                          const std::string& directory = "/") {
    TRY_ASSIGN(os::Pipe out, os::make_pipe());
    TRY_ASSIGN(const os::UniqueFd null, os::open_file("/dev/null", O_RDONLY));
    const WorkloadSpec spec{argv, {"PATH=/usr/bin:/bin", "ODD=\xff\xfe"}, directory};
    TRY(channel_->spawn(1, spec, {null.get(), out.write.get(), out.write.get()}));
    out.write.reset();
    TRY_ASSIGN(out_, os::read_fd(out.read.get()));
    return wait_end();
  }

  Result<WorkloadEnd> wait_end() {
    pollfd entry{channel_->fd(), POLLIN, 0};
    if (::poll(&entry, 1, 10000) != 1) return Error("no report");
    return channel_->receive_end();
  }

  os::ChildProcess process_;
  std::optional<Pid1Channel> channel_;
  std::optional<Pid1Channel::SetUp> setup_;
  std::string out_;
};

TEST_F(Pid1, ReportsHowAProgramEnded) {
  install();
  const struct {
    std::vector<std::string> argv;
    std::string directory;
    WorkloadEnd::Kind kind;
    int value;
  } kCases[] = {
      {{"true"}, "/", WorkloadEnd::Kind::kExited, 0},
      {{"sh", "-c", "exit 37"}, "/", WorkloadEnd::Kind::kExited, 37},
      {{"sh", "-c", "kill -9 $$"}, "/", WorkloadEnd::Kind::kSignalled, 9},
      {{"no-such-program"}, "/", WorkloadEnd::Kind::kNotStarted, ENOENT},
      {{"/no/such/program"}, "/", WorkloadEnd::Kind::kNotStarted, ENOENT},
      {{"/etc/passwd"}, "/", WorkloadEnd::Kind::kNotStarted, EACCES},
      {{"true"}, "/no/such/directory", WorkloadEnd::Kind::kNotStarted, ENOENT},
  };
  for (const auto& c : kCases) {
    const auto end = run(c.argv, c.directory);
    ASSERT_TRUE(end.ok()) << end.error().message();
    EXPECT_EQ(end->kind, c.kind) << c.argv.back();
    EXPECT_EQ(end->value, c.value) << c.argv.back();
  }
}

TEST_F(Pid1, GivesAProgramDescriptorsZeroToTwoOnly) {
  install();
  const auto end = run({"sh", "-c", "ls /proc/$$/fd"});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(out_, "0\n1\n2\n");
}

TEST_F(Pid1, CarriesArgumentsAndEnvironmentByteByByte) {
  install();
  const auto end = run({"printf", "%s|%s|", "\xff\x01 odd", ""});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(out_, "\xff\x01 odd||");
  ASSERT_TRUE(run({"printenv", "ODD"}).ok());
  EXPECT_EQ(out_, "\xff\xfe\n");
}

TEST_F(Pid1, RefusesASystemCallAndTellsOfIt) {
  install();
  os::Pipe out = std::move(os::make_pipe()).value();
  const WorkloadSpec spec{{"unshare", "--uts", "true"}, {"PATH=/usr/bin:/bin"}, "/"};
  ASSERT_TRUE(channel_->spawn(1, spec, {out.read.get(), out.write.get(), out.write.get()}).ok());
  pollfd entry{setup_->listener.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10000), 1);
  const auto notice = setup_->listener.receive();
  ASSERT_TRUE(notice.ok());
  ASSERT_TRUE(notice->has_value());
  EXPECT_EQ(syscall_name((*notice)->number), "unshare");
  ASSERT_TRUE(setup_->listener.refuse(**notice, EPERM).ok());
  const auto end = wait_end();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->value, 1);
}

TEST_F(Pid1, SignalsTheWholeGroupOfAWorkload) {
  install();
  os::Pipe out = std::move(os::make_pipe()).value();
  const WorkloadSpec spec{{"sh", "-c", "echo up; sleep 30 & wait"}, {"PATH=/usr/bin:/bin"}, "/"};
  ASSERT_TRUE(channel_->spawn(5, spec, {out.read.get(), out.write.get(), out.write.get()}).ok());
  char text[3];
  ASSERT_EQ(::read(out.read.get(), text, 3), 3);
  ASSERT_TRUE(channel_->signal(5, SIGTERM).ok());
  ASSERT_TRUE(channel_->signal(6, SIGTERM).ok());  // nobody: no error
  const auto end = wait_end();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->id, 5);
  EXPECT_EQ(end->kind, WorkloadEnd::Kind::kSignalled);
  out.write.reset();
  EXPECT_EQ(::read(out.read.get(), text, 1), 0);  // the sleeper is gone too
}

TEST_F(Pid1, HandsOutATerminalOnlyWhenAsked) {
  install(true);
  EXPECT_TRUE(setup_->terminal.valid());
  const WorkloadSpec spec{
      {"sh", "-c", "tty; test -t 0 && test -t 2 && echo yes"}, {"PATH=/usr/bin:/bin"}, "/"};
  ASSERT_TRUE(channel_->spawn(1, spec, {}).ok());
  ASSERT_TRUE(wait_end().ok());
  std::string text;  // until EIO: the last slave is gone
  char piece[256];
  for (ssize_t got = 0; (got = ::read(setup_->terminal.get(), piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(got));
  }
  EXPECT_NE(text.find("/dev/pts/"), std::string::npos) << text;
  EXPECT_NE(text.find("yes"), std::string::npos) << text;
}

TEST_F(Pid1, ConnectsToALoopbackPort) {
  install();
  const os::UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(server.get(), 1), 0);
  ASSERT_EQ(::getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  const auto ask = [&](int id, int to) {
    EXPECT_TRUE(os::send_packet(channel_->fd(),
                                canonical_json({{"type", "connect"}, {"id", id}, {"port", to}}))
                    .ok());
    pollfd entry{channel_->fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 10000), 1);
    auto packet = os::receive_packet(channel_->fd());
    EXPECT_TRUE(packet.ok());
    return std::move(packet).value();
  };
  const os::Packet connected = ask(1, port);
  EXPECT_NE(connected.bytes.find("\"connected\""), std::string::npos) << connected.bytes;
  ASSERT_EQ(connected.fds.size(), 1U);
  const os::UniqueFd peer(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(::write(connected.fds[0].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(peer.get(), &byte, 1), 1);
  const os::Packet refused = ask(2, 1);
  EXPECT_NE(refused.bytes.find("\"connect_failed\""), std::string::npos) << refused.bytes;
  EXPECT_TRUE(refused.fds.empty());
}

TEST_F(Pid1, EndsWithItsSupervisor) {
  install();
  channel_.reset();
  const auto status = process_.wait_for(std::chrono::seconds(5));
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(status->has_value());
}

TEST_F(Pid1, EndsAtAMessageThatItDoesNotKnow) {
  ASSERT_TRUE(os::send_packet(channel_->fd(), R"({"type":"format"})").ok());
  const auto status = process_.wait_for(std::chrono::seconds(5));
  ASSERT_TRUE(status.ok());
  ASSERT_TRUE(status->has_value());
  EXPECT_EQ((*status)->code, 1);
}

TEST_F(Pid1, LimitsOpenFilesAndTheSizeOfAFileOfEachProgram) {
  ProgramRules rules;
  rules.open_files = 32;
  rules.file_size = 1U << 20U;
  install(false, rules);
  ASSERT_TRUE(
      run({"sh", "-c", "ulimit -n; ulimit -Hn; ulimit -n 64 2>/dev/null || echo refused"}).ok());
  EXPECT_EQ(out_, "32\n32\nrefused\n");
  const std::string file = testing::TempDir() + "/pid1-file-size";
  const std::string fill = "head -c \"$1\" /dev/zero > \"$0\"; echo $?; wc -c < \"$0\"; rm \"$0\"";
  ASSERT_TRUE(run({"sh", "-c", fill, file, "1048576"}).ok());
  EXPECT_EQ(out_, "0\n1048576\n");
  ASSERT_TRUE(run({"sh", "-c", fill, file, "1048577"}).ok());
  EXPECT_EQ(out_.substr(out_.find("1048576")), "1048576\n") << out_;
  EXPECT_NE(out_.substr(0, 2), "0\n");
}

TEST_F(Pid1, ExecutesOnlyWhatIsNamed) {
  ProgramRules rules;
  rules.executables = {"/bin/sh", "/bin/cat"};
  install(false, rules);
  const auto allowed = run({"sh", "-c", "cat /proc/self/comm"});
  ASSERT_TRUE(allowed.ok());
  EXPECT_EQ(allowed->value, 0);
  EXPECT_EQ(out_, "cat\n");
  const auto direct = run({"true"});
  ASSERT_TRUE(direct.ok());
  EXPECT_EQ(direct->kind, WorkloadEnd::Kind::kNotStarted);
  EXPECT_EQ(direct->value, EACCES);
  const auto below = run({"sh", "-c", "ls / 2>/dev/null"});
  ASSERT_TRUE(below.ok());
  EXPECT_EQ(below->value, 126);
  EXPECT_EQ(out_, "");
}

// Landlock without a word about it refuses every rename into another directory.
TEST_F(Pid1, RenamesBetweenDirectoriesWhereProgramsAreNamed) {
  ProgramRules rules;
  rules.executables = {"/bin/sh", "/bin/mkdir", "/bin/mv", "/bin/rm"};
  install(false, rules);
  const std::string line =
      "cd \"$0\" && mkdir -p m/a m/b && : > m/a/f && mv -n m/a/f m/b/f && rm -r m";
  const auto moved = run({"sh", "-c", line, testing::TempDir()});
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->value, 0) << out_;
}

TEST_F(Pid1, SaysWhichNamedProgramIsMissing) {
  const auto policy = SeccompPolicy::built_in();
  ASSERT_TRUE(policy.ok());
  const auto programs = policy->compile();
  ASSERT_TRUE(programs.ok());
  ProgramRules rules;
  rules.executables = {"/no/such/program"};
  const auto done = channel_->set_up(*programs, false, rules, -1);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message().find("/no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace cofferdam::orchestrator
