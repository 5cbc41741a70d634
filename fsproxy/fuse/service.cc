#include "fsproxy/fuse/service.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "common/os/beneath.h"
#include "common/os/case_folding.h"
#include "common/os/files.h"
#include "common/os/pipes.h"
#include "fsproxy/fuse/cage.h"
#include "fsproxy/fuse/checkpoint.h"
#include "fsproxy/fuse/control.h"

namespace cofferdam::fsproxy {
namespace {

// How often is looked at what is written past the service: more often where little is left.
constexpr int kMeterMs = 20;
constexpr int kNearMeterMs = 2;
constexpr std::uint64_t kNear = 4 * Passthrough::kLastQuota;
constexpr int kOverQuota = 3;  // exit status

}  // namespace

Result<std::unique_ptr<Service>> Service::create(const Arguments& arguments) {
  std::unique_ptr<Service> out(new Service());
  ::umask(0);
  TRY_ASSIGN(const std::string text, os::read_file(arguments.policy_file));
  const auto names_of = [](const std::string& lower) {
    return os::folds_case(lower) ? policy::FsRules::Names::kFoldCase
                                 : policy::FsRules::Names::kExact;
  };
  TRY_ASSIGN(out->policy_, parse_fs_policy(text, names_of));
  const FsPolicy& policy = out->policy_;
  out->events_ = std::make_unique<log::EventLog>(
      os::UniqueFd(arguments.events_fd),
      log::EventContext{policy.sandbox, policy.operation, policy.manifest, "fsproxy"});
  out->ledger_ = std::make_unique<overlay::Ledger>(policy.quota_bytes, policy.quota_entries);
  out->liveness_.reset(arguments.liveness_fd);
  out->control_.reset(arguments.control_fd);
  for (const int fd : {arguments.liveness_fd, arguments.events_fd}) TRY(os::set_cloexec(fd, true));

  if (arguments.mounts.size() != policy.mounts.size()) {
    return Error("the policy has " + std::to_string(policy.mounts.size()) +
                 " mounts, the command line " + std::to_string(arguments.mounts.size()));
  }
  // Half of what there is, for directories and databases need some too.
  const std::uint64_t open_files = os::raise_open_files_limit();
  const std::size_t per_mount = std::max<std::size_t>(64, open_files / 2 / policy.mounts.size());
  for (const auto& [name, fd] : arguments.mounts) {
    const auto mount =
        std::find_if(policy.mounts.begin(), policy.mounts.end(),
                     [&wanted = name](const MountPolicy& m) { return m.name == wanted; });
    if (mount == policy.mounts.end()) return Error("--mount " + name + ": not in the policy");
    TRY_ASSIGN(auto session, Session::create(*mount, policy, *out->ledger_, *out->events_,
                                             per_mount, os::UniqueFd(fd)));
    out->sessions_.push_back(std::move(session));
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  out->terminate_.reset(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!out->terminate_) return Error::from_errno("signalfd");
  TRY_ASSIGN(out->news_, os::make_pipe());
  // What this process may is read before it may read nothing.
  const Status possible =
      arguments.passthrough ? BackingHelper::possible() : Error("--passthrough off");
  TRY(restrict_files(policy));
  const Status started = possible.ok() ? out->start_helper() : possible;
  if (possible.ok() && !started.ok()) {
    spdlog::warn("no passthrough: {}", started.error().message());
  }
  TRY(enter_cage());
  return out;
}

// Without it everything works, large files are slower.
Status Service::start_helper() {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  std::vector<int> fuse;
  for (const auto& session : sessions_) fuse.push_back(session->fuse_fd());
  TRY_ASSIGN(helper_, BackingHelper::start(fuse));
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    sessions_[i]->use_helper(helper_.get(), static_cast<std::uint32_t>(i));
  }
#endif
  return {};
}

void Service::run() {
  for (const auto& session : sessions_) session->start(news_.write.get());
  std::size_t running = sessions_.size();
  while (running > 0) {
    struct pollfd fds[4] = {{liveness_.get(), POLLIN, 0},
                            {terminate_.get(), POLLIN, 0},
                            {news_.read.get(), POLLIN, 0},
                            {control_.get(), POLLIN, 0}};
    const bool metered = std::any_of(sessions_.begin(), sessions_.end(),
                                     [](const auto& s) { return !s->meter().empty(); });
    const int wait_ms = !metered                                     ? -1
                        : written() + kNear > ledger_->limit().bytes ? kNearMeterMs
                                                                     : kMeterMs;
    if (::poll(fds, 4, wait_ms) < 0 && errno != EINTR) break;
    // At once: the mounts' threads may be busy, and the layers bear an end at any moment. Not by
    // _exit(), which a sanitizer's runtime holds up for a second.
    if (metered && is_over_quota()) ::syscall(SYS_exit_group, kOverQuota);
    if (fds[0].revents != 0 || fds[1].revents != 0) break;
    if ((fds[2].revents & POLLIN) != 0) {
      char byte = 0;
      const bool got = ::read(news_.read.get(), &byte, 1) == 1;
      if (got && byte == static_cast<char>(Session::News::kEnded)) --running;
    }
    if ((fds[3].revents & POLLIN) != 0) {
      answer_one(control_.get(), {[this] { return stats(); },
                                  [this](const std::string& body) { return checkpoint(body); }});
    }
  }
  for (const auto& session : sessions_) session->join();
}

// The kernel takes no writer's way past us back, but without this service the sandbox ends.
bool Service::is_over_quota() const {
  const std::uint64_t limit = ledger_->limit().bytes;
  if (written() + Passthrough::kLastQuota <= limit) return false;
  for (const auto& session : sessions_) {
    if (!session->meter().empty()) session->tell_over_quota();
  }
  spdlog::error(
      "what is written to open large files comes within {} MiB of the quota of {} MiB and cannot "
      "be "
      "held back: the sandbox ends; give it a larger quota",
      Passthrough::kLastQuota >> 20U, limit >> 20U);
  return true;
}

std::uint64_t Service::written() const {
  std::uint64_t used = ledger_->used().bytes;
  for (const auto& session : sessions_) used += session->meter().uncharged();
  return used;
}

Answer Service::checkpoint(const std::string& body) {
  const auto refuse = [](const char* status, const std::string& why) -> Answer {
    return {status, {{"error", why}}};
  };
  std::string name;
  std::chrono::milliseconds patience = kCheckpointPatience;
  if (!body.empty()) {
    const auto json = parse_json(body);
    if (!json.ok() || !json->is_object()) return refuse("400 Bad Request", "not a JSON object");
    for (const auto& [key, value] : json->items()) {
      if (key == "name" && value.is_string()) {
        name = value.get<std::string>();
      } else if (key == "patience_ms" && value.is_number_unsigned()) {
        const auto most = static_cast<std::uint64_t>(kCheckpointPatience.count());
        patience = std::chrono::milliseconds(std::min(value.get<std::uint64_t>(), most));
      } else {
        return refuse("400 Bad Request", "unknown key " + key);
      }
    }
  }
  const auto taken = take_checkpoint(sessions_, name, *events_, patience);
  if (!taken.ok()) {
    const bool busy = taken.error().error_number() == EBUSY;
    return refuse(busy ? "409 Conflict" : "500 Internal Server Error", taken.error().message());
  }
  return {"200 OK",
          {{"id", taken->id},
           {"name", taken->name},
           {"layer", taken->layer},
           {"parent", taken->parent},
           {"time_ns", taken->time_ns}}};
}

Json Service::stats() const {
  Json mounts = Json::array();
  for (const auto& session : sessions_) {
    mounts.push_back({{"name", session->name()},
                      {"requests", session->requests().all()},
                      {"by_operation", session->requests().by_operation()},
                      {"nodes", session->nodes()},
                      {"watches", session->watches()},
                      {"passthrough", session->passthrough()},
                      {"denials", session->denials()}});
  }
  const overlay::LedgerTotals used = ledger_->used();
  const overlay::LedgerTotals limit = ledger_->limit();
  return {{"mounts", std::move(mounts)}, {"events_healthy", events_->healthy()},
          {"bytes", used.bytes},         {"bytes_limit", limit.bytes},
          {"entries", used.entries},     {"entries_limit", limit.entries}};
}

}  // namespace cofferdam::fsproxy
