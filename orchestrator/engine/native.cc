#include "orchestrator/engine/native.h"

#include <signal.h>

#include <algorithm>
#include <future>
#include <optional>

#include "orchestrator/engine/launcher.h"
#include "orchestrator/engine/policy_files.h"
#include "orchestrator/engine/preparer.h"
#include "orchestrator/engine/process_one.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/engine/system_files.h"
#include "orchestrator/steps/cgroup.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::chrono::seconds kServicePatience{3};

class NativeEngine final : public Engine {
 public:
  explicit NativeEngine(const EngineInput& input) : input_(input) {}

  std::vector<Step> start_steps() override {
    return {
        {"policies",
         [this] {
           return write_policies(input_.plan, input_.sandbox.record, {0, 0});
         },
         {}},
        {"limits", [this] { return make_cgroup(); }, [this] { cgroup_.remove(); }},
        {"namespaces", [this] { return prepare(); }, [this] { preparer_.reset(); }},
        {"services", [this] { return start_services(); }, [this] { end_services(); }},
        {"launcher", [this] { return launch(); }, [this] { end_workload(); }},
        {"services", [this] { return services_->wait_ready(input_.interrupt, input_.events); }, {}},
        {"seccomp", [this] { return set_up(); }, [this] { setup_.reset(); }},
    };
  }

  Pid1Channel& pid1() override { return *pid1_; }
  const os::SeccompListener& listener() const override { return setup_->listener; }
  const SeccompPolicy& seccomp() const override { return *seccomp_; }
  os::UniqueFd take_terminal() override { return std::move(setup_->terminal); }
  Services& services() override { return *services_; }

  void end_workload() override {
    if (!process_one_) return;
    end_process_one(*process_one_, services_ ? &*services_ : nullptr);
    // The launcher waits for process 1 and ends by itself; an orphaned process 1 is ours to reap.
    auto ended = preparer_->process().wait_for(std::chrono::seconds(1));
    if (ended.ok() && !*ended) (void)preparer_->process().signal(SIGKILL).ok();
    os::reap_orphan(process_one_->pid());
    process_one_.reset();
  }

  std::vector<std::string> limit_hits() const override { return cgroup_.hits(); }

 private:
  Status make_cgroup() {
    Json& resources = input_.sandbox.record.resources;
    const auto record = [&](const std::filesystem::path& directory) -> Status {
      Json& list = resources["cgroups"];
      if (std::find(list.begin(), list.end(), directory.string()) != list.end()) return {};
      list.push_back(directory.string());
      return input_.sandbox.save();
    };
    TRY_ASSIGN(cgroup_, Cgroup::create(input_.plan.limits, input_.plan.sandbox_id, record));
    return {};
  }

  Status prepare() {
    TRY_ASSIGN(trees_, find_system_trees());
    TRY_ASSIGN(const std::vector<os::UniqueFd> groups, cgroup_.entries());
    TRY_ASSIGN(preparer_, Preparer::start(input_.plan, trees_.large(), groups, input_.interrupt));
    // Where there is no shield the look at a whole tree takes as long as everything else before the
    // launch: a thread that shares nothing.
    masked_ = std::async(std::launch::async | std::launch::deferred,
                         [trees = trees_, shielded = preparer_->shielded()]() mutable {
                           find_masks(shielded, &trees);
                           return trees;
                         });
    return {};
  }

  Status start_services() {
    const SandboxRecord& record = input_.sandbox.record;
    ServiceSettings settings;
    settings.fs_policy = record.fs_policy();
    settings.egress_policy = record.egress_policy();
    settings.control_directory = record.directory;
    settings.events_fd = input_.events.fd();
    settings.change_ids = input_.plan.ids.caller_uid == 0;
    settings.uid = settings.gid = input_.plan.ids.service_uid;
    TRY_ASSIGN(services_, Services::start(settings, preparer_->take_fds()));
    return {};
  }

  void end_services() {
    if (services_) services_->end(kServicePatience, input_.events);
    services_.reset();
  }

  Status launch() {
    TRY_ASSIGN(const auto launcher, find_launcher());
    const SystemTrees trees = masked_.get();
    auto files = make_etc_files(input_.plan);
    for (const auto& [path, content] : input_.plan.files) files[path] = content;
    for (const SecretPlan& secret : input_.plan.secrets) {
      if (secret.is_placed_for(input_.plan.argv)) files[secret.path()] = secret.value;
    }
    LaunchRequest request;
    for (auto& [path, content] : files) {
      request.paths.push_back(path);
      request.files.push_back(std::move(content));
    }
    request.program = launcher.string();
    request.command = make_launcher_command(launcher.string());
    request.etc = stage_etc(input_.plan, trees, request.paths);
    request.options =
        make_launcher_options(input_.plan, trees, request.etc, request.paths, find_proc_masks());
    TRY_ASSIGN(Launched launched, preparer_->launch(request, input_.interrupt));
    TRY_ASSIGN(process_one_, os::ProcessHandle::open(launched.pid1));
    pid1_.emplace(std::move(launched.socket));
    return {};
  }

  Status set_up() {
    TRY_ASSIGN(seccomp_, SeccompPolicy::built_in(input_.plan.seccomp));
    TRY_ASSIGN(const SeccompPrograms programs, seccomp_->compile());
    ProgramRules rules = program_rules(input_.plan);
    if (cgroup_.limits_pids()) rules.processes.reset();
    auto done = pid1_->set_up(programs, input_.plan.terminal, rules, input_.interrupt);
    if (!done.ok()) {
      const std::string why = preparer_->complaints();
      return why.empty() ? done.error() : done.error().context(why);
    }
    setup_ = std::move(done).value();
    return {};
  }

  EngineInput input_;
  SystemTrees trees_;
  std::future<SystemTrees> masked_;
  Cgroup cgroup_;
  std::optional<Preparer> preparer_;
  std::optional<Services> services_;
  std::optional<os::ProcessHandle> process_one_;
  std::optional<Pid1Channel> pid1_;
  std::optional<SeccompPolicy> seccomp_;
  std::optional<Pid1Channel::SetUp> setup_;
};

}  // namespace

std::unique_ptr<Engine> make_native_engine(const EngineInput& input) {
  return std::make_unique<NativeEngine>(input);
}

}  // namespace cofferdam::orchestrator
