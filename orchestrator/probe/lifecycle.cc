// Attempts on secrets, limits and the sandbox's end.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "orchestrator/probe/probe.h"

namespace probe {
namespace {

// environ NAME: whether the variable is there.
int variable_present(const Arguments& arguments) {
  const char* value = std::getenv(arguments.at(0).c_str());
  if (value == nullptr) return blocked("not there");
  return escaped(arguments.at(0) + " is there");
}

// say NAME: prints the variable, for whoever looks at the output.
int say_variable(const Arguments& arguments) {
  const char* value = std::getenv(arguments.at(0).c_str());
  if (value == nullptr) return unusable("no such variable");
  std::printf("%s\n", value);
  return blocked("printed; see whether it came out");
}

// fork-many N: N processes at once.
int fork_many(const Arguments& arguments) {
  const long wanted = std::stol(arguments.at(0));
  std::vector<pid_t> children;
  int fault = 0;
  for (long i = 0; i < wanted; ++i) {
    const pid_t pid = ::fork();
    if (pid < 0) {
      fault = errno;
      break;
    }
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) ::kill(pid, SIGKILL);
  for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
  const std::string count = std::to_string(children.size()) + " processes";
  if (fault != 0) return blocked(count + ", then: " + std::strerror(fault));
  return escaped(count);
}

// interfaces: any but lo.
int foreign_interface(const Arguments& arguments) {
  (void)arguments;
  std::ifstream in("/proc/self/net/dev");
  if (!in) return unusable("/proc/self/net/dev");
  std::string line;
  while (std::getline(in, line)) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(' ');
    const std::string name = line.substr(begin, colon - begin);
    if (name != "lo") return escaped("interface " + name);
  }
  return blocked("lo alone");
}

// unsized PATH: a file system in memory without a limit of its own.
int unsized_memory(const Arguments& arguments) {
  constexpr long kTmpfs = 0x01021994;
  constexpr unsigned long long kMost = 64ULL << 30U;
  struct statfs facts {};
  if (::statfs(arguments.at(0).c_str(), &facts) != 0) return blocked_by_errno("statfs");
  if (facts.f_type != kTmpfs) return blocked("not in memory");
  const auto bytes = static_cast<unsigned long long>(facts.f_blocks) *
                     static_cast<unsigned long long>(facts.f_bsize);
  if (bytes == 0 || bytes > kMost) return escaped("no limit");
  return blocked(std::to_string(bytes >> 20U) + " MiB");
}

// daemon NAME: a process of its own session that ignores every polite signal and is meant to
// outlive the run; NAME is its argv[0].
int leave_daemon(const Arguments& arguments) {
  const pid_t pid = ::fork();
  if (pid < 0) return unusable("fork");
  if (pid > 0) {
    ::waitpid(pid, nullptr, 0);
    return blocked("left; see whether it is still there afterwards");
  }
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  for (const int number : {SIGTERM, SIGHUP, SIGINT}) ::signal(number, SIG_IGN);
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  ::execl("/proc/self/exe", arguments.at(0).c_str(), "wait", nullptr);
  ::_exit(1);
}

// wait: until it is killed.
int wait_for_ever(const Arguments& arguments) {
  (void)arguments;
  ::signal(SIGTERM, SIG_IGN);
  for (;;) ::pause();
}

// control-fork: a few processes are no problem.
int fork_few(const Arguments& arguments) {
  (void)arguments;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    if (pid < 0) return blocked_by_errno("fork");
    if (pid == 0) ::_exit(0);
    ::waitpid(pid, nullptr, 0);
  }
  return escaped("8 processes");
}

// serve-canary: on the host. Listens on 127.0.0.1, prints its port, answers everybody with the
// canary until its stdin ends.
int serve_canary(const Arguments& arguments) {
  (void)arguments;
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, generic, size) != 0 || ::listen(listener, 8) != 0 ||
      ::getsockname(listener, generic, &size) != 0) {
    return unusable("listen");
  }
  std::printf("%d\n", ntohs(address.sin_port));
  std::fclose(stdout);
  for (;;) {
    pollfd entries[2] = {{listener, POLLIN, 0}, {0, POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 || entries[1].revents != 0) return kEscaped;
    const int peer = ::accept(listener, nullptr, nullptr);
    if (peer < 0) continue;
    constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nCANARY\n";
    (void)!::send(peer, kAnswer, sizeof kAnswer - 1, MSG_NOSIGNAL);
    ::close(peer);
  }
}

}  // namespace

const Attempt kLifecycleAttempts[] = {{"environ", variable_present},     {"say", say_variable},
                                      {"fork-many", fork_many},          {"control-fork", fork_few},
                                      {"unsized", unsized_memory},       {"daemon", leave_daemon},
                                      {"interfaces", foreign_interface}, {"wait", wait_for_ever},
                                      {"serve-canary", serve_canary},    {nullptr, nullptr}};

}  // namespace probe
