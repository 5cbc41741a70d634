#include "orchestrator/engine/docker/docker_engine.h"

#include <sys/stat.h>

#include <optional>

#include "common/log/diagnostics.h"
#include "common/os/files.h"
#include "common/os/unmount.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/container_plan.h"
#include "orchestrator/engine/docker/container_process.h"
#include "orchestrator/engine/docker/daemon_address.h"
#include "orchestrator/engine/docker/pause_image.h"
#include "orchestrator/engine/docker/read_back.h"
#include "orchestrator/engine/docker/remains.h"
#include "orchestrator/engine/docker/run_directory.h"
#include "orchestrator/engine/docker/seccomp_profile.h"
#include "orchestrator/engine/embedded_seccomp.h"
#include "orchestrator/engine/launcher.h"
#include "orchestrator/engine/policy_files.h"
#include "orchestrator/engine/preparer.h"
#include "orchestrator/engine/process_one.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/engine/system_files.h"
#include "orchestrator/steps/cgroup.h"

namespace cofferdam::orchestrator::docker {
namespace {

constexpr std::chrono::seconds kServicePatience{3};
constexpr const char* kElsewhere =
    "the Docker daemon does not run on this kernel or does not see this machine's files: a sandbox "
    "needs both. Remedy: a daemon of this machine, outside of any container or virtual machine";
// Docker's filter and the two that process 1 installs.
constexpr int kFilters = 3;

bool exists(const char* path) {
  struct stat st {};
  return ::stat(path, &st) == 0;
}

KernelPaths find_kernel_paths() {
  KernelPaths paths;
  paths.masked = find_proc_masks();
  for (const char* path : {"/sys/firmware", "/sys/kernel/debug", "/sys/kernel/security",
                           "/sys/kernel/tracing", "/sys/devices/virtual/powercap"}) {
    if (exists(path)) paths.masked.emplace_back(path);
  }
  paths.readonly_paths = {"/proc/sys"};
  paths.ipv6 = exists("/proc/sys/net/ipv6/conf/all/disable_ipv6");
  return paths;
}

class DockerEngine final : public Engine {
 public:
  explicit DockerEngine(const EngineInput& input)
      : input_(input), layout_(input.plan.sandbox_id), paths_(find_kernel_paths()) {}

  std::vector<Step> start_steps() override {
    return {
        {"docker", [this] { return connect(); }, [this] { forget_resources(); }},
        {"run directory", [this] { return make_directory(); }, [this] { remove_directory(); }},
        {"policies", [this] { return make_policies(); }, {}},
        {"pause container", [this] { return start_pause(); }, [this] { remove(pause_plan_); }},
        {"network and mounts", [this] { return prepare(); }, [this] { unmount(); }},
        {"services", [this] { return start_services(); }, [this] { end_services(); }},
        {"container", [this] { return start_workload(); }, [this] { remove_workload(); }},
        {"seccomp", [this] { return set_up(); }, [this] { setup_.reset(); }},
        {"read back", [this] { return read_back(); }, {}},
    };
  }

  Pid1Channel& pid1() override { return *pid1_; }
  const os::SeccompListener& listener() const override { return setup_->listener; }
  const SeccompPolicy& seccomp() const override { return *seccomp_; }
  os::UniqueFd take_terminal() override { return std::move(setup_->terminal); }
  Services& services() override { return *services_; }

  void end_workload() override {
    if (!process_one_) return;
    limit_hits_ = limit_hits_in(cgroups_);  // the group goes with its last process
    end_process_one(*process_one_, services_ ? &*services_ : nullptr);
    process_one_.reset();
  }

  std::vector<std::string> limit_hits() const override { return limit_hits_; }

 private:
  Json& resources() { return input_.sandbox.record.resources; }

  Status connect() {
    TRY_ASSIGN(const std::string address, own_daemon_address());
    TRY_ASSIGN(client_, DockerClient::connect(address, input_.interrupt));
    TRY_ASSIGN(const ImageFacts image, client_->inspect_image(input_.plan.docker->image_id));
    if (image.id != input_.plan.docker->image_id) {
      return Error("the image " + input_.plan.docker->image + " changed after the plan was made");
    }
    TRY_ASSIGN(const Json policy, parse_json(kSeccompPolicyJson));
    TRY_ASSIGN(profile_, make_seccomp_profile(policy));
    const SandboxRecord& record = input_.sandbox.record;
    owner_ = {record.id, instance_of(record), record.boot_id};
    // Recorded before anything is made, so that `reap` finds it whenever we die.
    const std::string name = "cofferdam-" + record.id;
    resources()["docker"] = address;
    resources()["containers"] = Json::array({name + "-pause", name});
    resources()["mounts"] = Json::array();
    for (const MountPlan& mount : input_.plan.mounts) {
      resources()["mounts"].push_back(layout_.mount(mount.name));
    }
    resources()["directories"] = Json::array({layout_.directory});
    return input_.sandbox.save();
  }

  void forget_resources() {
    if (leftovers_) return;
    for (const char* key : {"docker", "containers", "mounts", "directories"}) {
      resources().erase(key);
    }
  }

  // Something stays: it is recorded, and `rm` and `reap` try again.
  void note_leftover(const Status& status) {
    if (status.ok()) return;
    leftovers_ = true;
    spdlog::warn("{} (cofferdam rm tries again)", status.error().message());
  }

  Status make_directory() {
    Plan inside = input_.plan;
    TRY_ASSIGN(inside.ids.inside_uid, workload_uid(input_.plan));
    TRY_ASSIGN(inside.ids.inside_gid, workload_gid(input_.plan));
    auto files = make_etc_files(inside);
    for (const auto& [path, content] : input_.plan.files) files[path] = content;
    for (const SecretPlan& secret : input_.plan.secrets) {
      if (secret.is_placed_for(input_.plan.argv)) files[secret.path()] = secret.value;
    }
    RunContents contents;
    TRY_ASSIGN(contents.program, find_own_program("cofferdam-init"));
    for (auto& [path, content] : files) {
      file_paths_.push_back(path);
      contents.files.push_back(std::move(content));
    }
    for (const MountPlan& mount : input_.plan.mounts) contents.mount_names.push_back(mount.name);
    return make_run_directory(layout_, contents);
  }

  void remove_directory() { note_leftover(remove_run_directory(layout_)); }

  Status make_policies() {
    ShownIds shown;
    TRY_ASSIGN(shown.uid, workload_uid(input_.plan));
    TRY_ASSIGN(shown.gid, workload_gid(input_.plan));
    return write_policies(input_.plan, input_.sandbox.record, shown);
  }

  // Creates and starts; what was made is removed again when that fails.
  Status start(const ContainerPlan& plan, std::string* id) {
    auto created = client_->create_container(plan.name, make_create_request(plan));
    if (!created.ok()) {
      if (created.error().error_number() == EINTR) remove(plan);
      return created.error();
    }
    *id = *created;
    if (const auto started = client_->start_container(*id); !started.ok()) {
      remove(plan);
      return started.error();
    }
    return {};
  }

  void remove(const ContainerPlan& plan) {
    client_->ignore_interrupt();
    note_leftover(remove_owned_container(input_.sandbox.record, plan.name));
  }

  Status start_pause() {
    TRY_ASSIGN(const auto program, find_own_program("cofferdam-init"));
    TRY_ASSIGN(const PauseImage image, find_or_import_pause_image(*client_, program));
    TRY_ASSIGN(pause_plan_,
               make_pause_plan(input_.plan, owner_, layout_, image.id, paths_, profile_));
    if (const auto started = start(pause_plan_, &pause_id_); !started.ok()) {
      const bool unseen =
          started.error().message().find("bind source path does not exist") != std::string::npos;
      return unseen ? started.error().context(kElsewhere) : started.error();
    }
    const auto checked = check_pause(image);
    if (!checked.ok()) remove(pause_plan_);
    return checked;
  }

  Status check_pause(const PauseImage& image) {
    auto process = open_container_process(*client_, pause_id_);
    if (!process.ok()) return process.error().context(kElsewhere);
    pause_ = std::move(process).value();
    const auto started = wait_for_program_digest(*pause_, image.program_digest, input_.interrupt);
    // A process of that number that is another one: Docker's numbers are not this kernel's.
    if (!started.ok() && started.error().error_number() == ETIMEDOUT) {
      return started.error().context(kElsewhere);
    }
    TRY(started);
    TRY_ASSIGN(const bool same, sees_same_file(*pause_, "/token", layout_.token()));
    if (!same) return Error(kElsewhere);
    TRY_ASSIGN(const Json inspect, client_->inspect_container(pause_id_));
    TRY(compare_inspect(pause_plan_, inspect));
    TRY_ASSIGN(const std::string status, read_proc(*pause_, "status"));
    TRY(compare_status(pause_plan_, status, 1));
    TRY_ASSIGN(const std::string interfaces, read_proc(*pause_, "net/dev"));
    return compare_interfaces(interfaces);
  }

  static Result<std::string> read_proc(const os::ProcessHandle& process, const char* name) {
    return os::read_file("/proc/" + std::to_string(process.pid()) + "/" + name);
  }

  Status prepare() {
    std::vector<std::string> targets;
    for (const MountPlan& mount : input_.plan.mounts) targets.push_back(layout_.mount(mount.name));
    auto preparer = Preparer::start_join(input_.plan, pause_->fd(), targets, input_.interrupt);
    if (!preparer.ok()) {
      unmount();
      return preparer.error();
    }
    fds_ = preparer->take_fds();
    return {};
  }

  void unmount() {
    for (const MountPlan& mount : input_.plan.mounts) {
      note_leftover(os::unmount_if_mounted(layout_.mount(mount.name)));
    }
  }

  Status start_services() {
    const SandboxRecord& record = input_.sandbox.record;
    ServiceSettings settings;
    settings.fs_policy = record.fs_policy();
    settings.egress_policy = record.egress_policy();
    settings.control_directory = record.directory;
    settings.events_fd = input_.events.fd();
    settings.change_ids = true;
    settings.uid = settings.gid = input_.plan.ids.service_uid;
    TRY_ASSIGN(services_, Services::start(settings, std::move(fds_)));
    return services_->wait_ready(input_.interrupt, input_.events);
  }

  void end_services() {
    if (services_) services_->end(kServicePatience, input_.events);
    services_.reset();
  }

  Status start_workload() {
    TRY_ASSIGN(workload_plan_, make_workload_plan(input_.plan, owner_, layout_, pause_id_,
                                                  file_paths_, paths_, profile_));
    TRY(start(workload_plan_, &workload_id_));
    const auto taken = take_process_one();
    if (!taken.ok()) remove_workload();
    return taken;
  }

  Status take_process_one() {
    TRY_ASSIGN(process_one_, open_container_process(*client_, workload_id_));
    TRY(wait_for_program(*process_one_, layout_.init(), input_.interrupt));
    TRY_ASSIGN(os::UniqueFd socket, take_socket(*process_one_, input_.interrupt));
    pid1_.emplace(std::move(socket));
    TRY_ASSIGN(const std::string groups, read_proc(*process_one_, "cgroup"));
    TRY_ASSIGN(const std::string mounts, os::read_file("/proc/self/mountinfo"));
    for (const auto& [controller, place] : parse_cgroup_places(groups, mounts)) {
      cgroups_.push_back(place.directory);
    }
    return {};
  }

  void remove_workload() {
    end_workload();
    remove(workload_plan_);
  }

  Status set_up() {
    TRY_ASSIGN(seccomp_, SeccompPolicy::built_in(input_.plan.seccomp));
    TRY_ASSIGN(const SeccompPrograms programs, seccomp_->compile());
    ProgramRules rules = program_rules(input_.plan);
    rules.processes.reset();  // the container's control group counts them
    TRY_ASSIGN(setup_, pid1_->set_up(programs, input_.plan.terminal, rules, input_.interrupt));
    return {};
  }

  // Process 1 waits for work: nothing of the workload has run yet.
  Status read_back() {
    TRY_ASSIGN(const Json inspect, client_->inspect_container(workload_id_));
    TRY(compare_inspect(workload_plan_, inspect));
    TRY_ASSIGN(const std::string status, read_proc(*process_one_, "status"));
    TRY(compare_status(workload_plan_, status, kFilters));
    TRY_ASSIGN(const std::string mounts, read_proc(*process_one_, "mountinfo"));
    TRY_ASSIGN(const auto devices, fuse_devices());
    TRY(compare_mounts(workload_plan_, mounts, devices));
    TRY_ASSIGN(const NamespaceLinks host, namespace_links("self"));
    TRY_ASSIGN(const NamespaceLinks pause, namespace_links(std::to_string(pause_->pid())));
    TRY_ASSIGN(const NamespaceLinks own, namespace_links(std::to_string(process_one_->pid())));
    TRY(compare_namespaces(host, pause, own));
    TRY_ASSIGN(const std::string interfaces, read_proc(*process_one_, "net/dev"));
    TRY(compare_interfaces(interfaces));
    if (process_one_->ended() || pause_->ended()) return Error("the container ended");
    return {};
  }

  Result<std::map<std::string, std::string>> fuse_devices() const {
    TRY_ASSIGN(const std::string mountinfo, os::read_file("/proc/self/mountinfo"));
    std::vector<std::string> points;
    for (const MountPlan& mount : input_.plan.mounts) points.push_back(layout_.mount(mount.name));
    const auto devices = mounted_devices(mountinfo, points);
    std::map<std::string, std::string> by_target;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (devices[i].empty()) return Error("nothing is mounted at " + points[i]);
      by_target[input_.plan.mounts[i].inside] = devices[i];
    }
    return by_target;
  }

  EngineInput input_;
  RunLayout layout_;
  KernelPaths paths_;
  std::optional<DockerClient> client_;
  ContainerOwner owner_;
  Json profile_;
  std::vector<std::string> file_paths_;
  ContainerPlan pause_plan_;
  ContainerPlan workload_plan_;
  std::string pause_id_;
  std::string workload_id_;
  std::optional<os::ProcessHandle> pause_;
  ServiceFds fds_;
  std::optional<Services> services_;
  std::optional<os::ProcessHandle> process_one_;
  std::optional<Pid1Channel> pid1_;
  std::optional<SeccompPolicy> seccomp_;
  std::optional<Pid1Channel::SetUp> setup_;
  std::vector<std::filesystem::path> cgroups_;
  std::vector<std::string> limit_hits_;
  bool leftovers_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_docker_engine(const EngineInput& input) {
  return std::make_unique<DockerEngine>(input);
}

}  // namespace cofferdam::orchestrator::docker
