// What Docker says that it runs.
#include <algorithm>
#include <cmath>

#include "orchestrator/engine/docker/read_back.h"

namespace cofferdam::orchestrator::docker {
namespace {

Error differs(const std::string& field, const Json& found, const Json& planned) {
  constexpr std::size_t kLongest = 200;
  const auto text = [](const Json& value) { return canonical_json(value).substr(0, kLongest); };
  return Error("the container is not what was planned: " + field + " is " + text(found) +
               ", planned " + text(planned));
}

// A missing value, null and an empty list or object mean the same to Docker.
Json at(const Json& body, const std::string& pointer) {
  const Json::json_pointer path(pointer);
  return body.contains(path) ? body.at(path) : Json();
}
bool is_nothing(const Json& value) {
  return value.is_null() || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

class Comparison final {
 public:
  explicit Comparison(const Json& inspect) : inspect_(inspect) {}

  Comparison& equal(const std::string& pointer, const Json& planned) {
    const Json found = at(inspect_, pointer);
    if (found != planned) note(pointer, found, planned);
    return *this;
  }
  Comparison& nothing(const std::string& pointer) {
    const Json found = at(inspect_, pointer);
    if (!is_nothing(found)) note(pointer, found, Json());
    return *this;
  }
  // Nothing, or one of these.
  Comparison& usual(const std::string& pointer, std::initializer_list<const char*> values) {
    const Json found = at(inspect_, pointer);
    const bool fine = is_nothing(found) || std::any_of(values.begin(), values.end(),
                                                       [&](auto value) { return found == value; });
    if (!fine) note(pointer, found, *values.begin());
    return *this;
  }
  void note(const std::string& field, const Json& found, const Json& planned) {
    if (status_.ok()) status_ = differs(field, found, planned);
  }
  const Json& inspect() const { return inspect_; }
  Status take() { return std::move(status_); }

 private:
  const Json& inspect_;
  Status status_;
};

void compare_mount_list(Comparison& compare, const ContainerPlan& plan) {
  const Json mounts = at(compare.inspect(), "/Mounts");
  std::size_t binds = 0;
  for (const Json& mount : mounts) {
    const std::string target = mount.value("Destination", std::string());
    const std::string type = mount.value("Type", std::string());
    if (type == "tmpfs") {
      const bool planned =
          std::any_of(plan.tmpfs.begin(), plan.tmpfs.end(),
                      [&](const TmpfsPlan& item) { return item.target == target; });
      if (!planned) compare.note("/Mounts", mount, Json());
      continue;
    }
    const auto found = std::find_if(plan.binds.begin(), plan.binds.end(),
                                    [&](const BindPlan& bind) { return bind.target == target; });
    if (type != "bind" || found == plan.binds.end()) {
      compare.note("/Mounts", mount, Json());
      continue;
    }
    ++binds;
    if (mount.value("Source", std::string()) != found->source) {
      compare.note("/Mounts" + target + "/Source", mount.value("Source", Json()), found->source);
    }
    if (mount.value("RW", true) == found->read_only_by_docker()) {
      compare.note("/Mounts" + target + "/RW", mount.value("RW", Json()),
                   !found->read_only_by_docker());
    }
    if (mount.value("Propagation", std::string()) != "rprivate") {
      compare.note("/Mounts" + target + "/Propagation", mount.value("Propagation", Json()),
                   "rprivate");
    }
  }
  if (binds != plan.binds.size()) {
    compare.note("/Mounts", binds, plan.binds.size());
  }
}

void compare_networks(Comparison& compare, const ContainerPlan& plan) {
  const Json networks = at(compare.inspect(), "/NetworkSettings/Networks");
  if (is_nothing(networks)) return;
  const bool only_none =
      plan.network == "none" && networks.size() == 1 && networks.contains("none");
  if (!only_none) compare.note("/NetworkSettings/Networks", networks, Json());
}

void compare_security(Comparison& compare, const ContainerPlan& plan) {
  const Json options = at(compare.inspect(), "/HostConfig/SecurityOpt");
  const Json planned =
      Json::array({"no-new-privileges", "seccomp=" + canonical_json(plan.seccomp)});
  if (options != planned) compare.note("/HostConfig/SecurityOpt", options, planned);
  compare.equal("/HostConfig/Privileged", false)
      .equal("/HostConfig/ReadonlyRootfs", true)
      .equal("/HostConfig/CapDrop", Json::array({"ALL"}))
      .nothing("/HostConfig/CapAdd")
      .nothing("/HostConfig/Devices")
      .nothing("/HostConfig/DeviceRequests")
      .nothing("/HostConfig/DeviceCgroupRules")
      .nothing("/HostConfig/GroupAdd")
      .nothing("/HostConfig/VolumesFrom")
      .nothing("/HostConfig/Binds")
      .nothing("/HostConfig/Links")
      .nothing("/HostConfig/PidMode")
      .nothing("/HostConfig/UTSMode")
      .nothing("/HostConfig/PortBindings")
      .nothing("/NetworkSettings/Ports")
      .equal("/HostConfig/IpcMode", "private")
      .equal("/HostConfig/CgroupnsMode", "private")
      .usual("/HostConfig/UsernsMode", {"host"})
      .usual("/HostConfig/RestartPolicy/Name", {"no"})
      .equal("/HostConfig/MaskedPaths", plan.masked_paths)
      .equal("/HostConfig/ReadonlyPaths", plan.readonly_paths)
      .nothing("/ExecIDs");
}

void compare_limits(Comparison& compare, const ContainerPlan& plan) {
  if (plan.pids) compare.equal("/HostConfig/PidsLimit", *plan.pids);
  if (plan.memory_bytes) compare.equal("/HostConfig/Memory", *plan.memory_bytes);
  if (plan.cpus) compare.equal("/HostConfig/NanoCpus", std::llround(*plan.cpus * 1e9));
  compare.equal("/HostConfig/ShmSize", plan.shm_bytes);
}

}  // namespace

Status compare_inspect(const ContainerPlan& plan, const Json& inspect) {
  if (!inspect.is_object() || plan.command.empty()) return Error("no description of the container");
  Comparison compare(inspect);
  try {
    const std::vector<std::string> arguments(plan.command.begin() + 1, plan.command.end());
    compare.equal("/State/Running", true)
        .equal("/Image", plan.image_id)
        .equal("/Path", plan.command.front())
        .equal("/Args", arguments)
        .equal("/Config/User", std::to_string(plan.uid) + ":" + std::to_string(plan.gid))
        .equal("/Config/Tty", false)
        .equal("/Config/OpenStdin", false)
        .equal("/Config/Healthcheck/Test", Json::array({"NONE"}))
        .equal("/HostConfig/NetworkMode", plan.network);
    for (const auto& [name, value] : plan.labels) {
      const Json labels = at(inspect, "/Config/Labels");
      const Json found = labels.is_object() && labels.contains(name) ? labels.at(name) : Json();
      if (found != value) compare.note("label " + name, found, value);
    }
    compare_networks(compare, plan);
    compare_security(compare, plan);
    compare_limits(compare, plan);
    compare_mount_list(compare, plan);
  } catch (const Json::exception& fault) {
    return Error(std::string("the Docker daemon's description of the container: ") + fault.what());
  }
  return compare.take();
}

}  // namespace cofferdam::orchestrator::docker
