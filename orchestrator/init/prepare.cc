// Role prepare: namespaces, network, gate and FUSE mounts of one sandbox, then the launcher.
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/os/files.h"
#include "common/os/pipes.h"
#include "orchestrator/init/channel.h"
#include "orchestrator/init/gate.h"
#include "orchestrator/init/loopback.h"
#include "orchestrator/init/protocol.h"
#include "orchestrator/init/roles.h"
#include "orchestrator/init/ruleset.h"
#include "orchestrator/init/shield.h"
#include "orchestrator/init/staging.h"

namespace cofferdam::init {
namespace {

struct Request {
  bool join = false;
  std::vector<std::string> mounts;  // names, or targets on the host when joining
  std::vector<bool> read_only;      // joining: for each mount
  StagingSizes sizes;
  std::vector<std::string> shield;
};

Result<Request> parse_request(const Json& body) {
  Request request;
  try {
    request.join = body.at("join").get<bool>();
    request.mounts = body.at("mounts").get<std::vector<std::string>>();
    if (request.join) {
      request.read_only = body.at("read_only").get<std::vector<bool>>();
      if (request.read_only.size() != request.mounts.size()) {
        return Error("prepare message: read_only does not fit mounts");
      }
    } else {
      request.sizes.tmp_bytes = body.at("tmp_bytes").get<std::uint64_t>();
      request.sizes.tmp_exec = body.at("tmp_exec").get<bool>();
      request.sizes.shm_bytes = body.at("shm_bytes").get<std::uint64_t>();
      request.shield = body.at("shield").get<std::vector<std::string>>();
    }
  } catch (const Json::exception& fault) {
    return Error(std::string("prepare message: ") + fault.what());
  }
  return request;
}

Result<std::vector<os::UniqueFd>> open_fuse_devices(std::size_t count) {
  std::vector<os::UniqueFd> devices;
  for (std::size_t i = 0; i < count; ++i) {
    TRY_ASSIGN(os::UniqueFd device, os::open_file("/dev/fuse", O_RDWR));
    devices.push_back(std::move(device));
  }
  return devices;
}

// Becomes root of the new user namespace. A change of ids clears the parent-death signal: it is set
// again, and the socket's end tells of a parent that died in between.
Status become_namespace_root(bool may_set_groups) {
  if (may_set_groups && ::setgroups(0, nullptr) != 0) return Error::from_errno("setgroups");
  if (::setresgid(0, 0, 0) != 0) return Error::from_errno("setresgid");
  if (::setresuid(0, 0, 0) != 0) return Error::from_errno("setresuid");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Error::from_errno("PR_SET_PDEATHSIG");
  return {};
}

Status make_namespaces(int socket) {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) {
    return Error::from_errno("unshare user, mount and network namespaces");
  }
  TRY(send_message(socket, {{"type", "unshared"}}));
  TRY_ASSIGN(const Message mapped, receive_message(socket));
  return expect(mapped, "mapped");
}

Status join_network(const Message& message) {
  if (message.fds.size() != 1) return Error("prepare --join: no process to join");
  if (::setns(message.fds[0].get(), CLONE_NEWNET) != 0) return Error::from_errno("setns");
  return {};
}

Status send_prepared(int socket, const std::vector<os::UniqueFd>& devices,
                     const std::vector<os::UniqueFd>& gate,
                     const std::vector<std::string>& shielded) {
  std::vector<int> fds;
  for (const auto& fd : devices) fds.push_back(fd.get());
  for (const auto& fd : gate) fds.push_back(fd.get());
  return send_message(socket,
                      {{"type", "prepared"},
                       {"fuse", devices.size()},
                       {"gate", gate.size()},
                       {"shielded", shielded}},
                      fds);
}

// Everything until both services hold their descriptors; they are closed here on return.
Status prepare(int socket, int program) {
  TRY_ASSIGN(const Message message, receive_message(socket));
  TRY(expect(message, "prepare"));
  TRY_ASSIGN(const Request request, parse_request(message.body));
  const bool started_by_root = ::geteuid() == 0;
  if (request.join) {
    TRY(join_network(message));
  } else {
    TRY(make_namespaces(socket));
  }
  TRY_ASSIGN(const auto devices, open_fuse_devices(request.mounts.size()));
  std::vector<std::string> shielded;
  if (!request.join) {
    TRY(become_namespace_root(started_by_root));
    TRY(make_staging(request.sizes, program));
    shielded = shield_trees(request.shield);
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::string target = request.mounts[i];
    if (!request.join) {
      target = std::string(kStagedMounts) + "/" + target;
      if (::mkdir(target.c_str(), 0755) != 0) return Error::from_errno("mkdir " + target);
    }
    TRY(mount_fuse(devices[i].get(), target, request.join && request.read_only[i]));
  }
  TRY(set_up_loopback());
  TRY(load_ruleset());
  TRY_ASSIGN(const auto gate, open_gate());
  return send_prepared(socket, devices, gate, shielded);
}

Status move_fd(int from, int to) {
  if (::dup2(from, to) < 0) return Error::from_errno("dup2");  // dup2 leaves CLOEXEC off
  return {};
}

// Only returns with an error.
Status launch(int socket) {
  TRY_ASSIGN(const Message message, receive_message(socket));
  TRY(expect(message, "launch"));
  if (message.fds.size() != 3) return Error("launch message: wrong number of descriptors");
  std::string program;
  std::vector<std::string> words;
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> paths;
  EtcRequest etc;
  try {
    program = message.body.at("program").get<std::string>();
    words = message.body.at("command").get<std::vector<std::string>>();
    sizes = message.body.at("files").get<std::vector<std::uint64_t>>();
    paths = message.body.at("paths").get<std::vector<std::string>>();
    const Json& asked = message.body.at("etc");
    asked.at("binds").get_to(etc.binds);
    asked.at("links").get_to(etc.links);
    asked.at("files").get_to(etc.files);
  } catch (const Json::exception& fault) {
    return Error(std::string("launch message: ") + fault.what());
  }
  if (paths.size() != sizes.size()) return Error("launch message: paths do not fit files");
  TRY(stage_etc(etc));
  TRY(stage_files(message.fds[1].get(), sizes, paths, etc));
  TRY(move_fd(message.fds[0].get(), kLauncherArgsFd));
  TRY(move_fd(message.fds[2].get(), kLauncherInfoFd));
  TRY(os::set_cloexec(socket, false));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* const env[] = {nullptr};
  ::execve(program.c_str(), argv.data(), env);
  return Error::from_errno("execute " + program);
}

int fail(int socket, const Error& error) {
  (void)send_message(socket, {{"type", "failed"}, {"message", error.message()}}).ok();
  return 1;
}

}  // namespace

int run_prepare() {
  ::umask(022);
  if (const auto closed = os::set_cloexec(kSocketFd, true); !closed.ok()) return 1;
  auto program = os::open_file("/proc/self/exe", O_RDONLY);
  if (!program.ok()) return fail(kSocketFd, program.error());
  if (const auto done = prepare(kSocketFd, program->get()); !done.ok()) {
    return fail(kSocketFd, done.error());
  }
  return fail(kSocketFd, launch(kSocketFd).error());
}

}  // namespace cofferdam::init
