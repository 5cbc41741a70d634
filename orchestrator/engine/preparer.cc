#include "orchestrator/engine/preparer.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/json_text.h"
#include "common/os/fd_passing.h"
#include "common/os/files.h"
#include "common/os/memory_file.h"
#include "common/os/pipes.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/engine/wait_readable.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::uint32_t kRangeSize = 65536;
constexpr std::size_t kMaxComplaints = 4096;

Result<os::Packet> receive(int socket, const char* wanted, int interrupt) {
  TRY(wait_readable(socket, interrupt, kPatience));
  TRY_ASSIGN(os::Packet packet, os::receive_packet(socket));
  if (packet.end_of_stream) return Error("ended early", EPIPE);
  TRY_ASSIGN(const Json body, parse_json(packet.bytes));
  if (!body.is_object()) return Error("an unexpected message");
  const std::string type = body.value("type", std::string());
  if (type == "failed") return Error(body.value("message", std::string("failed")));
  if (type != wanted) return Error("an unexpected message: " + type);
  return packet;
}

Status write_proc(pid_t pid, const char* name, const std::string& text) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  TRY_ASSIGN(const os::UniqueFd fd, os::open_file(path, O_WRONLY));
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Error::from_errno(path);
  }
  return {};
}

// Started by root: a range of ids without 0 outside. By an ordinary user: the caller alone, which
// needs setgroups(2) given up (user_namespaces(7)).
Status write_id_maps(pid_t pid, const IdPlan& ids) {
  if (ids.range_base) {
    const std::string map =
        "0 " + std::to_string(*ids.range_base) + " " + std::to_string(kRangeSize) + "\n";
    TRY(write_proc(pid, "gid_map", map));
    return write_proc(pid, "uid_map", map);
  }
  if (ids.caller_uid == 0) return Error("started by root without a range of ids");
  TRY(write_proc(pid, "setgroups", "deny"));
  TRY(write_proc(pid, "gid_map", "0 " + std::to_string(ids.caller_gid) + " 1\n"));
  return write_proc(pid, "uid_map", "0 " + std::to_string(ids.caller_uid) + " 1\n");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(word).push_back('\0');
  return text;
}

// bubblewrap's --info-fd: {"child-pid": N, …}. Written by bubblewrap before anything of the
// workload runs.
Result<pid_t> read_child_pid(int fd, int interrupt) {
  TRY(wait_readable(fd, interrupt, kPatience));
  TRY_ASSIGN(const std::string text, os::read_fd(fd, kMaxComplaints));
  auto body = parse_json(text);
  if (!body.ok() || !body->is_object() || !body->contains("child-pid") ||
      !(*body)["child-pid"].is_number_integer()) {
    return Error("the launcher ended early");
  }
  return (*body)["child-pid"].get<pid_t>();
}

}  // namespace

Result<Preparer> Preparer::spawn(const std::vector<os::UniqueFd>& groups) {
  TRY_ASSIGN(const auto program, find_own_program("cofferdam-init"));
  TRY_ASSIGN(os::SocketPair pair, os::make_packet_pair());
  TRY_ASSIGN(os::Pipe complaints, os::make_pipe());
  TRY(os::set_nonblocking(complaints.read.get(), true));
  os::SpawnOptions options;
  options.argv = {program.string(), "prepare"};
  options.env = std::vector<std::string>{};
  options.fds = {{pair.second.get(), init::kSocketFd}, {complaints.write.get(), 2}};
  options.directory = "/";
  for (const os::UniqueFd& group : groups) options.groups.push_back(group.get());
  options.new_session = true;
  options.die_with_parent = true;
  Preparer preparer;
  TRY_ASSIGN(preparer.process_, os::ChildProcess::spawn(options));
  preparer.socket_ = std::move(pair.first);
  preparer.stderr_ = std::move(complaints.read);
  return preparer;
}

Result<Preparer> Preparer::start(const Plan& plan, const std::vector<std::string>& shield,
                                 const std::vector<os::UniqueFd>& groups, int interrupt) {
  TRY_ASSIGN(Preparer preparer, spawn(groups));
  TRY(preparer.make_namespaces(plan, shield, interrupt));
  TRY(preparer.receive_fds(plan, interrupt));
  return preparer;
}

Status Preparer::make_namespaces(const Plan& plan, const std::vector<std::string>& shield,
                                 int interrupt) {
  Json request{{"type", "prepare"},
               {"join", false},
               {"mounts", Json::array()},
               {"tmp_bytes", plan.limits.tmp_bytes},
               {"tmp_exec", plan.limits.tmp_exec},
               {"shm_bytes", plan.limits.shm_bytes},
               {"shield", shield}};
  for (const MountPlan& mount : plan.mounts) request["mounts"].push_back(mount.name);
  TRY(os::send_packet(socket_.get(), canonical_json(request)));
  TRY_ASSIGN([[maybe_unused]] const os::Packet unshared,
             receive(socket_.get(), "unshared", interrupt));
  TRY(write_id_maps(process_.pid(), plan.ids));
  return os::send_packet(socket_.get(), canonical_json({{"type", "mapped"}}));
}

Result<Preparer> Preparer::start_join(const Plan& plan, int pidfd,
                                      const std::vector<std::string>& targets, int interrupt) {
  TRY_ASSIGN(Preparer preparer, spawn({}));
  std::vector<bool> read_only;
  for (const MountPlan& mount : plan.mounts) read_only.push_back(!mount.writable);
  const Json request{
      {"type", "prepare"}, {"join", true}, {"mounts", targets}, {"read_only", read_only}};
  TRY(os::send_packet(preparer.socket_.get(), canonical_json(request), {pidfd}));
  TRY(preparer.receive_fds(plan, interrupt));
  return preparer;
}

Status Preparer::receive_fds(const Plan& plan, int interrupt) {
  TRY_ASSIGN(os::Packet packet, receive(socket_.get(), "prepared", interrupt));
  if (packet.fds.size() <= plan.mounts.size()) return Error("descriptors are missing");
  TRY_ASSIGN(const Json body, parse_json(packet.bytes));
  for (const Json& tree : body.value("shielded", Json::array())) {
    if (tree.is_string()) shielded_.push_back(tree.get<std::string>());
  }
  for (std::size_t i = 0; i < packet.fds.size(); ++i) {
    if (i < plan.mounts.size()) {
      fds_.mounts.emplace_back(plan.mounts[i].name, std::move(packet.fds[i]));
    } else {
      fds_.gate.push_back(std::move(packet.fds[i]));
    }
  }
  return {};
}

Result<Launched> Preparer::launch(const LaunchRequest& request, int interrupt) {
  Json sizes = Json::array();
  std::string contents;
  for (const std::string& file : request.files) {
    sizes.push_back(file.size());
    contents += file;
  }
  if (contents.size() > init::kMaxStagedFiles)
    return Error("the files placed inside are too large");
  const Json message{{"type", "launch"},
                     {"program", request.program},
                     {"command", request.command},
                     {"files", sizes},
                     {"paths", request.paths},
                     {"etc",
                      {{"binds", request.etc.binds},
                       {"links", request.etc.symlinks},
                       {"files", request.etc.files}}}};
  TRY_ASSIGN(const os::UniqueFd options, os::make_memory_file("options", joined(request.options)));
  TRY_ASSIGN(const os::UniqueFd files, os::make_memory_file("files", contents));
  TRY_ASSIGN(os::Pipe info, os::make_pipe());
  TRY(os::send_packet(socket_.get(), canonical_json(message),
                      {options.get(), files.get(), info.write.get()}));
  info.write.reset();
  const auto pid = read_child_pid(info.read.get(), interrupt);
  if (!pid.ok()) {
    (void)process_.wait_for(std::chrono::milliseconds(200)).ok();  // let it say why
    const std::string why = complaints();
    if (!why.empty()) return Error(why, pid.error().error_number());
    // prepare's own complaint comes over the socket
    auto last = receive(socket_.get(), "nothing", interrupt);
    return last.ok() ? pid.error() : last.error();
  }
  return Launched{*pid, std::move(socket_)};
}

std::string Preparer::complaints() const {
  std::string text(kMaxComplaints, '\0');
  const ssize_t got = ::read(stderr_.get(), text.data(), text.size());
  if (got <= 0) return {};
  text.resize(static_cast<std::size_t>(got));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace cofferdam::orchestrator
