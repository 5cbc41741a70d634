#include "orchestrator/engine/docker/container_process.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "common/base/sha256.h"
#include "common/os/files.h"
#include "orchestrator/engine/wait_readable.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::orchestrator::docker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPause{5};
constexpr std::chrono::seconds kPatience{10};

std::string proc_path(const os::ProcessHandle& process, const std::string& name) {
  return "/proc/" + std::to_string(process.pid()) + "/" + name;
}

// Asks `done` every few milliseconds until it says yes.
Status wait_until(const os::ProcessHandle& process, int interrupt, const char* what,
                  const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    if (done()) return {};
    const auto ended = wait_readable(process.fd(), interrupt, kPause);
    if (ended.ok()) return Error(std::string("the container ended before ") + what);
    if (ended.error().error_number() == EINTR) return ended.error();
    if (std::chrono::steady_clock::now() > deadline) {
      return Error(std::string("waited too long for ") + what, ETIMEDOUT);
    }
  }
}

bool same_file(const std::string& first, const std::string& second) {
  struct stat a {};
  struct stat b {};
  return ::stat(first.c_str(), &a) == 0 && ::stat(second.c_str(), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Result<os::ProcessHandle> open_container_process(const DockerClient& client,
                                                 const std::string& id) {
  TRY_ASSIGN(const Json inspect, client.inspect_container(id));
  const Json::json_pointer where("/State/Pid");
  if (!inspect.contains(where) || !inspect.at(where).is_number_integer() ||
      inspect.at(where).get<std::int64_t>() <= 1) {
    return Error("the container does not run");
  }
  return os::ProcessHandle::open(inspect.at(where).get<pid_t>())
      .context("process 1 of the container");
}

Status wait_for_program(const os::ProcessHandle& process, const std::string& path, int interrupt) {
  const std::string exe = proc_path(process, "exe");
  return wait_until(process, interrupt, "our init started", [&] { return same_file(exe, path); });
}

Status wait_for_program_digest(const os::ProcessHandle& process, const std::string& digest,
                               int interrupt) {
  const std::string exe = proc_path(process, "exe");
  return wait_until(process, interrupt, "our init started", [&] {
    const auto content = os::read_file(exe);
    return content.ok() && to_hex(sha256(*content)) == digest;
  });
}

Result<os::UniqueFd> take_socket(const os::ProcessHandle& process, int interrupt) {
  os::UniqueFd socket;
  TRY(wait_until(process, interrupt, "its socket was there", [&] {
    auto taken = process.take_descriptor(init::kSocketFd + 1);
    if (taken.ok()) socket = std::move(taken).value();
    return socket.valid();
  }));
  return socket;
}

Result<bool> sees_same_file(const os::ProcessHandle& process, const std::string& inside,
                            const std::string& path) {
  const bool same = same_file(proc_path(process, "root") + inside, path);
  // The number was this process's all the time.
  if (process.ended()) return Error("the container ended");
  return same;
}

Result<NamespaceLinks> namespace_links(const std::string& pid) {
  NamespaceLinks links;
  for (const char* name : {"net", "pid", "mnt", "ipc", "uts", "cgroup", "user"}) {
    std::error_code fault;
    const std::string path = "/proc/" + pid + "/ns/" + name;
    const auto target = std::filesystem::read_symlink(path, fault);
    if (fault) return Error::from_errno(path, fault.value());
    links[name] = target.string();
  }
  return links;
}

}  // namespace cofferdam::orchestrator::docker
