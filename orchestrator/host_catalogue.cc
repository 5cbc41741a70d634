#include "orchestrator/host_catalogue.h"

#include <algorithm>
#include <array>

namespace cofferdam::orchestrator {
namespace {

using State = HostCheck::State;

constexpr std::uint64_t kGoodWatches = 65'536;
constexpr std::uint64_t kGoodInstances = 128;

HostCheck made(std::string name, bool good, std::string detail, std::string remedy) {
  HostCheck check;
  check.name = std::move(name);
  check.state = good ? State::kGood : State::kAbsent;
  check.detail = std::move(detail);
  if (!good) check.remedy = std::move(remedy);
  return check;
}

// The first required check of an engine that fails, or nothing.
const HostCheck* first_missing(const std::vector<HostCheck>& checks) {
  const auto found = std::find_if(checks.begin(), checks.end(), [](const HostCheck& check) {
    return check.required && check.state != State::kGood;
  });
  return found == checks.end() ? nullptr : &*found;
}

HostCheck engine_level(const HostFacts& facts, const char* name, const char* engine,
                       const char* what) {
  const std::vector<HostCheck> checks = check_host(facts, engine);
  if (const HostCheck* missing = first_missing(checks); missing != nullptr) {
    return made(name, false, missing->name + ": " + missing->detail, missing->remedy);
  }
  return made(name, true, what, "");
}

bool has_runtime(const HostExtras& extras, std::string_view name) {
  return std::any_of(extras.runtimes.begin(), extras.runtimes.end(),
                     [&](const std::string& have) { return have.starts_with(name); });
}

void add_isolation(const HostFacts& facts, const HostExtras& extras, std::vector<Capability>* out) {
  const auto add = [&](HostCheck check) { out->push_back({"isolation", std::move(check)}); };
  add(engine_level(facts, "workspace", "native",
                   "engine native: namespaces over this machine's own system files"));
  add(engine_level(facts, "container", "docker", "engine docker: an image of its own"));
  struct Runtime {
    const char* name;
    const char* what;
    const char* remedy;
  };
  constexpr std::array kRuntimes = {
      Runtime{"runc", "OCI runtime of the Docker daemon", "install runc and restart Docker"},
      Runtime{"crun", "OCI runtime of the Docker daemon; not selected in this version",
              "apt install crun, and name it in /etc/docker/daemon.json"},
      Runtime{"runsc",
              "gVisor, a kernel in user space; not selected in this version. Known: JIT of Node 22 "
              "and Bun crashes, no inotify on binds, no NAT rules",
              "install gVisor (runsc install)"},
      Runtime{"kata", "a virtual machine for each container; not selected in this version",
              "install Kata Containers; the processor must virtualise (/dev/kvm)"}};
  for (const Runtime& runtime : kRuntimes) {
    const bool there = has_runtime(extras, runtime.name);
    add(made(std::string("runtime ") + runtime.name, there,
             there ? runtime.what : "not known to the Docker daemon", runtime.remedy));
  }
}

void add_services(const HostFacts& facts, const HostExtras& extras, std::vector<Capability>* out) {
  const bool usable = first_missing(check_host(facts, "native")) == nullptr;
  const std::string remedy = "what engine native needs is missing: see above";
  const auto add = [&](const char* group, const char* name, const char* what) {
    out->push_back({group, made(name, usable, usable ? what : "not without a sandbox", remedy)});
  };
  add("network", "network control",
      "by name and by every resolved address, in egressproxy; no route past it");
  add("environment", "environment filtering", "nothing of yours but a safe set and what is named");
  add("isolation", "sandbox per run", "namespaces, layers and a gate of its own for each");
  add("isolation", "sandbox per tool", "a run for each call");
  add("changes", "snapshot export", "diff, export and merge from the layer, checked by base");
  out->push_back(
      {"changes", made("commits", extras.reader.works,
                       extras.reader.works ? "read by cofferdam-reader, never by git"
                                           : "no cofferdam-reader " + extras.reader.detail,
                       "install cofferdam-reader beside cofferdam")});
}

void add_limits(const HostFacts& facts, std::vector<Capability>* out) {
  for (HostCheck& check : check_host(facts, "native")) {
    if (check.name.starts_with("limit ")) out->push_back({"limits", std::move(check)});
  }
  const CgroupFacts& cgroups = facts.cgroups;
  const bool delegated = !cgroups.controllers.empty();
  out->push_back(
      {"limits",
       made("cgroup delegation", delegated, cgroups.detail.empty() ? "no cgroups" : cgroups.detail,
            facts.uid == 0 ? "mount cgroup2 at /sys/fs/cgroup"
                           : "run below a delegated unit: systemd-run --user --scope -p "
                             "Delegate=yes cofferdam run …")});
}

void add_files(const HostExtras& extras, std::vector<Capability>* out) {
  const auto add = [&](HostCheck check) { out->push_back({"files", std::move(check)}); };
  const Probe& way = extras.passthrough;
  add(made("FUSE passthrough", way.works,
           way.works ? "large and new files go past fsproxy"
                     : "every byte passes through fsproxy (" + way.detail + ")",
           "nothing is weaker without it; it needs root, Linux 6.9 and libfuse 3.17 "
           "(tools/get_libfuse)"));
  add(made("overlay whiteouts", extras.whiteouts.works && extras.attributes.works,
           extras.whiteouts.works && extras.attributes.works
               ? "device 0:0 and extended attributes, as overlayfs writes them"
               : "not in the state directory (" +
                     (extras.whiteouts.works ? extras.attributes : extras.whiteouts).detail +
                     "): deletions are kept in the layer's own record",
           "nothing is weaker without it; for layers that overlayfs can mount, set XDG_STATE_HOME "
           "to a directory on ext4, xfs or btrfs"));
  add(made("reflink", extras.reflink.works,
           extras.reflink.works ? "bases are clones" : "bases are copies: " + extras.reflink.detail,
           "nothing is weaker without it; xfs and btrfs have it"));
  const std::string watches = std::to_string(extras.inotify_watches) + " watches, " +
                              std::to_string(extras.inotify_instances) + " instances";
  add(made("inotify",
           extras.inotify_watches >= kGoodWatches && extras.inotify_instances >= kGoodInstances,
           watches,
           "directories without a watch are looked at again each second. As root: sysctl "
           "fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512"));
}

}  // namespace

std::vector<Capability> capabilities_of(const HostFacts& facts, const HostExtras& extras) {
  std::vector<Capability> out;
  add_isolation(facts, extras, &out);
  add_services(facts, extras, &out);
  add_limits(facts, &out);
  add_files(extras, &out);
  const bool restricted = facts.apparmor_restricts && !facts.user_namespaces.works;
  out.push_back(
      {"kernel", made("AppArmor and user namespaces", !restricted,
                      facts.apparmor_restricts
                          ? "restricted to programs with a profile" +
                                std::string(restricted ? "" : "; this one has it, or is root's")
                          : "not restricted",
                      "install the profile that comes with the package (packaging/apparmor), or as "
                      "root: sysctl kernel.apparmor_restrict_unprivileged_userns=0")});
  return out;
}

}  // namespace cofferdam::orchestrator
