// Role pid1: process 1 of a sandbox. Reaps, and serves the supervisor over one socket.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/os/files.h"
#include "common/os/pipes.h"
#include "orchestrator/init/channel.h"
#include "orchestrator/init/execute_rules.h"
#include "orchestrator/init/filter.h"
#include "orchestrator/init/protocol.h"
#include "orchestrator/init/roles.h"
#include "orchestrator/init/workload.h"

namespace cofferdam::init {
namespace {

constexpr int kConnectPatienceMs = 2000;

Result<os::UniqueFd> open_master() {
  TRY_ASSIGN(os::UniqueFd master, os::open_file("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK));
  const int unlock = 0;
  if (::ioctl(master.get(), TIOCSPTLCK, &unlock) != 0) return Error::from_errno("TIOCSPTLCK");
  return master;
}

Result<os::UniqueFd> connect_to_loopback(int port) {
  os::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::from_errno("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return fd;
  }
  if (errno != EINPROGRESS) return Error::from_errno("connect");
  pollfd entry{fd.get(), POLLOUT, 0};
  if (::poll(&entry, 1, kConnectPatienceMs) <= 0) return Error::from_errno("connect", ETIMEDOUT);
  int fault = 0;
  socklen_t size = sizeof fault;
  (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &fault, &size);
  if (fault != 0) return Error::from_errno("connect", fault);
  return fd;
}

class Pid1 final {
 public:
  // `peer` is the supervisor's end where it was made here; closed once the supervisor has its own.
  Pid1(int socket, os::UniqueFd peer, os::UniqueFd children)
      : socket_(socket), peer_(std::move(peer)), children_(std::move(children)) {}

  // Until the supervisor is gone; the end of process 1 is the end of every process inside.
  int serve() {
    for (;;) {
      pollfd entries[2] = {{socket_, POLLIN, 0}, {children_.get(), POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0 && errno != EINTR) return 1;
      if (entries[1].revents != 0) reap();
      if (entries[0].revents == 0) continue;
      auto message = receive_message(socket_);
      if (!message.ok()) return 1;
      if (message->end_of_stream) return 0;
      const auto done = handle(*message);
      if (!done.ok()) {
        (void)send_message(socket_, {{"type", "failed"}, {"message", done.error().message()}}).ok();
        return 1;
      }
    }
  }

 private:
  Status handle(const Message& message) {
    const Json& body = message.body;
    const std::string type = body["type"].get<std::string>();
    try {
      if (type == "setup") return set_up(message);
      if (type == "spawn") return spawn(message);
      if (type == "signal") {
        const auto found = workloads_.find(body.at("id").get<int>());
        if (found != workloads_.end()) {
          (void)::kill(-found->second.pid, body.at("number").get<int>());
        }
        return {};
      }
      if (type == "connect") return connect(body.at("id").get<int>(), body.at("port").get<int>());
    } catch (const Json::exception& fault) {
      return Error(type + " message: " + fault.what());
    }
    return Error("unknown message: " + type);
  }

  Status set_up(const Message& message) {
    if (message.fds.size() != 2) return Error("setup message: wrong number of descriptors");
    peer_.reset();
    for (const auto& [key, limit] :
         {std::pair{"pids", &rules_.max_processes}, std::pair{"open_files", &rules_.open_files},
          std::pair{"file_size", &rules_.file_size}}) {
      if (const Json& most = message.body.at(key); !most.is_null()) {
        *limit = most.get<std::uint64_t>();
      }
    }
    if (const Json& programs = message.body.at("executables"); !programs.empty()) {
      TRY_ASSIGN(execute_rules_, make_execute_rules(programs.get<std::vector<std::string>>()));
      rules_.execute_rules = execute_rules_.get();
    }
    if (message.body.at("terminal").get<bool>()) {
      TRY_ASSIGN(master_, open_master());
    }
    TRY(install_filter(message.fds[0].get(), 0));
    TRY_ASSIGN(const os::UniqueFd listener, install_listening_filter(message.fds[1].get()));
    std::vector<int> fds{listener.get()};
    if (master_) fds.push_back(master_.get());
    return send_message(socket_, {{"type", "ready"}}, fds);
  }

  Status spawn(const Message& message) {
    const int id = message.body.at("id").get<int>();
    const bool terminal = message.body.at("terminal").get<bool>();
    if (message.fds.size() != (terminal ? 1U : 4U)) {
      return Error("spawn message: wrong number of descriptors");
    }
    TRY_ASSIGN(const std::string text, os::read_fd(message.fds[0].get(), kMaxSpawnSpec));
    TRY_ASSIGN(const SpawnSpec spec, parse_spawn_spec(text));
    WorkloadStdio stdio;
    os::UniqueFd slave;
    if (terminal) {
      if (!master_) {
        auto master = open_master();
        if (!master.ok()) return not_started(id, master.error());
        master_ = std::move(master).value();
        TRY(send_message(socket_, {{"type", "terminal"}, {"id", id}}, {master_.get()}));
      }
      slave.reset(::ioctl(master_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
      if (!slave) return Error::from_errno("terminal");
      stdio = {slave.get(), slave.get(), slave.get(), true};
    } else {
      stdio = {message.fds[1].get(), message.fds[2].get(), message.fds[3].get(), false};
    }
    auto workload = start_workload(spec, stdio, rules_);
    if (!workload.ok()) return not_started(id, workload.error());
    workloads_.emplace(id, std::move(workload).value());
    master_.reset();  // the supervisor's is the only one from here on
    return {};
  }

  Status not_started(int id, const Error& error) const {
    return send_message(socket_,
                        {{"type", "not_started"}, {"id", id}, {"errno", error.error_number()}});
  }

  Status connect(int id, int port) {
    auto fd = connect_to_loopback(port);
    if (fd.ok()) return send_message(socket_, {{"type", "connected"}, {"id", id}}, {fd->get()});
    return send_message(
        socket_, {{"type", "connect_failed"}, {"id", id}, {"errno", fd.error().error_number()}});
  }

  void reap() {
    signalfd_siginfo ignored[16];
    (void)!::read(children_.get(), ignored, sizeof ignored);
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid <= 0) return;
      for (auto it = workloads_.begin(); it != workloads_.end(); ++it) {
        if (it->second.pid != pid) continue;
        report(it->first, it->second, status);
        workloads_.erase(it);
        break;
      }
    }
  }

  void report(int id, const Workload& workload, int status) const {
    Json body{{"id", id}};
    if (workload.report.error_number() != 0) {
      body["type"] = "not_started";
      body["errno"] = workload.report.error_number();
    } else if (WIFSIGNALED(status)) {
      body["type"] = "signalled";
      body["number"] = WTERMSIG(status);
    } else {
      body["type"] = "exited";
      body["status"] = WEXITSTATUS(status);
    }
    (void)send_message(socket_, body).ok();
  }

  int socket_;
  os::UniqueFd peer_;
  os::UniqueFd children_;
  os::UniqueFd master_;
  os::UniqueFd execute_rules_;
  WorkloadRules rules_;
  std::map<int, Workload> workloads_;
};

// Standard descriptors that lead nowhere: process 1 has nothing to say but over its socket.
bool silence_stdio() {
  const os::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return false;
  for (int fd = 0; fd < 3; ++fd) {
    if (::dup2(null.get(), fd) < 0) return false;
  }
  return true;
}

}  // namespace

int run_pid1(bool make_socket) {
  // A workload of the same uid must not reach these descriptors (ptrace, /proc, pidfd_getfd). The
  // supervisor of a container takes its end as root, which may all the same.
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return 125;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 125;
  os::UniqueFd peer;
  if (make_socket) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) return 125;
    if (fds[0] != kSocketFd || fds[1] != kSocketFd + 1) return 125;
    peer.reset(fds[1]);
  }
  if (!os::set_cloexec(kSocketFd, true).ok()) return 125;
  if (!make_socket && ::syscall(SYS_close_range, kSocketFd + 1, ~0U, 0U) != 0) return 125;
  if (!silence_stdio()) return 125;
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  if (::sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return 125;
  os::UniqueFd children(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children) return 125;
  return Pid1(kSocketFd, std::move(peer), std::move(children)).serve();
}

}  // namespace cofferdam::init
