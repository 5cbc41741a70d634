// The docker engine's plan of a container, and that reading back refuses each weakening of it.
#include <gtest/gtest.h>

#include <functional>

#include "orchestrator/engine/docker/container_plan.h"
#include "orchestrator/engine/docker/read_back.h"
#include "orchestrator/engine/docker/run_directory.h"

namespace cofferdam::orchestrator::docker {
namespace {

constexpr std::uint32_t kBase = 0x70000000;

Plan make_plan() {
  Plan plan;
  plan.sandbox_id = "0123456789abcdef";
  plan.hostname = "cofferdam";
  plan.ids.range_base = kBase;
  plan.mounts = {{"home", "/root", std::nullopt, "/state/home", true},
                 {"workspace", "/root/project", "/root/project", "/state", true},
                 {"opt", "/opt", "/opt", std::nullopt, false}};
  plan.limits.pids = 100;
  plan.limits.memory_bytes = 1U << 30U;
  plan.limits.cpus = 1.5;
  plan.docker = DockerPlan{"image:1", "sha256:11", {"/data", "/tmp"}};
  return plan;
}

const ContainerOwner kOwner{"0123456789abcdef", "instance", "boot"};
const KernelPaths kPaths{{"/proc/kcore", "/proc/irq"}, {"/proc/sys"}, true};

ContainerPlan workload_plan() {
  const Plan plan = make_plan();
  auto made = make_workload_plan(plan, kOwner, RunLayout(plan.sandbox_id), "pauseid",
                                 {"/etc/hosts"}, kPaths, {{"defaultAction", "SCMP_ACT_ERRNO"}});
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

TEST(ContainerPlan, NoWorkloadIsRootOnTheHost) {
  Plan plan = make_plan();
  EXPECT_EQ(*workload_uid(plan), kBase);
  plan.ids.inside_uid = 1000;
  EXPECT_EQ(*workload_uid(plan), kBase + 1000);
  plan.ids.range_base = 0;
  EXPECT_FALSE(workload_uid(plan).ok());
  plan.ids.range_base.reset();
  EXPECT_FALSE(workload_uid(plan).ok());
  EXPECT_FALSE(make_pause_plan(plan, kOwner, RunLayout("x"), "sha256:2", kPaths, {}).ok());
}

TEST(ContainerPlan, VolumesOfTheImageBecomeTmpfsOnce) {
  const ContainerPlan plan = workload_plan();
  int data = 0;
  int tmp = 0;
  for (const TmpfsPlan& item : plan.tmpfs) {
    data += item.target == "/data" ? 1 : 0;
    tmp += item.target == "/tmp" ? 1 : 0;
    EXPECT_GT(item.bytes, 0U) << item.target;
  }
  EXPECT_EQ(data, 1);
  EXPECT_EQ(tmp, 1);
}

TEST(ContainerPlan, VolumesThatWouldHideTheWorkspaceAreRefused) {
  for (const char* path : {"/root/project/data", "/proc/x", "/", "relative", "/run/cofferdam/x"}) {
    Plan plan = make_plan();
    plan.docker->volumes = {path};
    EXPECT_FALSE(make_workload_plan(plan, kOwner, RunLayout("x"), "p", {}, kPaths, {}).ok())
        << path;
  }
}

TEST(ContainerPlan, TooFewProcessesForTheRuntimeAreRefused) {
  Plan plan = make_plan();
  plan.limits.pids = 15;
  EXPECT_FALSE(make_workload_plan(plan, kOwner, RunLayout("x"), "p", {}, kPaths, {}).ok());
  plan.limits.pids = 16;
  EXPECT_TRUE(make_workload_plan(plan, kOwner, RunLayout("x"), "p", {}, kPaths, {}).ok());
}

TEST(ContainerPlan, ARequestAsksForNothingThatWeakens) {
  const Json request = make_create_request(workload_plan());
  const Json& host = request.at("HostConfig");
  EXPECT_EQ(request.at("User"), "1879048192:1879048192");
  EXPECT_EQ(request.at("Healthcheck").at("Test"), Json::array({"NONE"}));
  EXPECT_EQ(request.at("Entrypoint").at(1), "pid1");
  EXPECT_EQ(host.at("NetworkMode"), "container:pauseid");
  EXPECT_EQ(host.at("CapDrop"), Json::array({"ALL"}));
  EXPECT_EQ(host.at("ReadonlyRootfs"), true);
  EXPECT_EQ(host.at("PidsLimit"), 100);
  EXPECT_EQ(host.at("MemorySwap"), host.at("Memory"));
  EXPECT_EQ(host.at("NanoCpus"), 1500000000);
  EXPECT_EQ(host.at("LogConfig").at("Type"), "none");
  for (const Json& mount : host.at("Mounts")) {
    const bool fuse = mount.at("Source").get<std::string>().find("/mounts/") != std::string::npos;
    EXPECT_EQ(mount.at("ReadOnly"), !fuse) << mount;
  }
}

TEST(ContainerPlan, ThePauseContainerHasNoNetworkAndItsOwnUid) {
  const Plan plan = make_plan();
  const auto pause =
      make_pause_plan(plan, kOwner, RunLayout(plan.sandbox_id), "sha256:22", kPaths, {});
  ASSERT_TRUE(pause.ok());
  const Json request = make_create_request(*pause);
  EXPECT_EQ(request.at("HostConfig").at("NetworkMode"), "none");
  EXPECT_EQ(request.at("Hostname"), "cofferdam");
  EXPECT_EQ(request.at("HostConfig").at("Sysctls").at("net.ipv6.conf.all.disable_ipv6"), "0");
  EXPECT_NE(pause->uid, *workload_uid(plan));
  EXPECT_NE(pause->uid, 0U);
}

// What Docker would say of the container that was planned.
Json honest_inspect(const ContainerPlan& plan) {
  const Json request = make_create_request(plan);
  Json mounts = Json::array();
  for (const BindPlan& bind : plan.binds) {
    mounts.push_back({{"Type", "bind"},
                      {"Source", bind.source},
                      {"Destination", bind.target},
                      {"RW", !bind.read_only_by_docker()},
                      {"Propagation", "rprivate"}});
  }
  return {{"State", {{"Running", true}, {"Pid", 77}}},
          {"Image", plan.image_id},
          {"Path", plan.command.front()},
          {"Args", std::vector<std::string>(plan.command.begin() + 1, plan.command.end())},
          {"Config", request},
          {"HostConfig", request.at("HostConfig")},
          {"Mounts", mounts},
          {"ExecIDs", nullptr},
          {"NetworkSettings", {{"Networks", Json::object()}, {"Ports", Json::object()}}}};
}

TEST(ReadBackOfDocker, ThePlannedContainerPasses) {
  const ContainerPlan plan = workload_plan();
  const auto compared = compare_inspect(plan, honest_inspect(plan));
  EXPECT_TRUE(compared.ok()) << (compared.ok() ? "" : compared.error().message());
}

TEST(ReadBackOfDocker, EachWeakeningIsRefusedByName) {
  struct Case {
    const char* pointer;
    Json value;
  };
  const Json endpoint{{"bridge", {{"IPAddress", "172.17.0.2"}}}};
  const std::vector<Case> cases = {
      {"/State/Running", false},
      {"/Image", "sha256:other"},
      {"/Path", "/bin/sh"},
      {"/Args", Json::array({"-c", "x"})},
      {"/Config/User", "0:0"},
      {"/Config/User", ""},
      {"/Config/Tty", true},
      {"/Config/OpenStdin", true},
      {"/Config/Healthcheck/Test", Json::array({"CMD", "x"})},
      {"/Config/Labels/dev.cofferdam.sandbox", "other"},
      {"/HostConfig/NetworkMode", "host"},
      {"/HostConfig/NetworkMode", "bridge"},
      {"/HostConfig/NetworkMode", "container:another"},
      {"/HostConfig/Privileged", true},
      {"/HostConfig/ReadonlyRootfs", false},
      {"/HostConfig/CapDrop", Json()},
      {"/HostConfig/CapAdd", Json::array({"NET_ADMIN"})},
      {"/HostConfig/SecurityOpt", Json::array({"no-new-privileges", "seccomp=unconfined"})},
      {"/HostConfig/SecurityOpt", Json()},
      {"/HostConfig/Devices", Json::array({{{"PathOnHost", "/dev/kmsg"}}})},
      {"/HostConfig/DeviceRequests", Json::array({{{"Driver", "x"}}})},
      {"/HostConfig/DeviceCgroupRules", Json::array({"a *:* rwm"})},
      {"/HostConfig/GroupAdd", Json::array({"docker"})},
      {"/HostConfig/VolumesFrom", Json::array({"other"})},
      {"/HostConfig/Binds", Json::array({"/:/host"})},
      {"/HostConfig/PidMode", "host"},
      {"/HostConfig/IpcMode", "host"},
      {"/HostConfig/IpcMode", "shareable"},
      {"/HostConfig/UTSMode", "host"},
      {"/HostConfig/CgroupnsMode", "host"},
      {"/HostConfig/RestartPolicy/Name", "always"},
      {"/HostConfig/MaskedPaths", Json::array()},
      {"/HostConfig/ReadonlyPaths", Json()},
      {"/HostConfig/PidsLimit", 0},
      {"/HostConfig/Memory", 0},
      {"/HostConfig/NanoCpus", 0},
      {"/HostConfig/ShmSize", 1U << 30U},
      {"/HostConfig/PortBindings", {{"80/tcp", Json::array({Json::object()})}}},
      {"/NetworkSettings/Networks", endpoint},
      {"/NetworkSettings/Networks", {{"none", Json::object()}}},
      {"/NetworkSettings/Ports", {{"80/tcp", Json::array({Json::object()})}}},
      {"/ExecIDs", Json::array({"abc"})},
      {"/Mounts/0/RW", false},
      {"/Mounts/0/Source", "/etc"},
      {"/Mounts/0/Propagation", "rshared"},
      {"/Mounts/0/Destination", "/elsewhere"},
      {"/Mounts/0/Type", "volume"},
  };
  const ContainerPlan plan = workload_plan();
  for (const Case& item : cases) {
    Json doctored = honest_inspect(plan);
    // A label's name holds dots, no slashes: a JSON pointer all the same.
    doctored[Json::json_pointer(item.pointer)] = item.value;
    const auto compared = compare_inspect(plan, doctored);
    EXPECT_FALSE(compared.ok()) << item.pointer << " = " << item.value;
  }
  Json more = honest_inspect(plan);
  more["Mounts"].push_back({{"Type", "volume"}, {"Destination", "/data"}, {"RW", true}});
  EXPECT_FALSE(compare_inspect(plan, more).ok());
  Json fewer = honest_inspect(plan);
  fewer["Mounts"].erase(0);
  EXPECT_FALSE(compare_inspect(plan, fewer).ok());
  Json missing = honest_inspect(plan);
  missing.erase("HostConfig");
  EXPECT_FALSE(compare_inspect(plan, missing).ok());
  EXPECT_FALSE(compare_inspect(plan, Json()).ok());
}

TEST(ReadBackOfDocker, ThePauseContainerMayBeOnNoneOnly) {
  const Plan plan = make_plan();
  const auto pause =
      make_pause_plan(plan, kOwner, RunLayout(plan.sandbox_id), "sha256:22", kPaths, {});
  ASSERT_TRUE(pause.ok());
  Json inspect = honest_inspect(*pause);
  inspect["NetworkSettings"]["Networks"] = {{"none", {{"IPAddress", ""}}}};
  EXPECT_TRUE(compare_inspect(*pause, inspect).ok());
  inspect["NetworkSettings"]["Networks"]["bridge"] = Json::object();
  EXPECT_FALSE(compare_inspect(*pause, inspect).ok());
}

using Fields = std::map<std::string, std::string>;

Fields honest_status() {
  const std::string uid = "1879048192\t1879048192\t1879048192\t1879048192";
  Fields fields{{"Uid", uid},        {"Gid", uid},     {"Groups", "1879048192 "},
                {"NoNewPrivs", "1"}, {"Seccomp", "2"}, {"Seccomp_filters", "3"}};
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    fields[set] = "0000000000000000";
  }
  return fields;
}

std::string status_text(const Fields& fields) {
  std::string text = "Name:\tinit\n";
  for (const auto& [name, value] : fields) text += name + ":\t" + value + "\n";
  return text;
}

TEST(ReadBackOfTheKernel, EachWeakeningOfAProcessIsRefused) {
  const ContainerPlan plan = workload_plan();
  EXPECT_TRUE(compare_status(plan, status_text(honest_status()), 3).ok());
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"Uid", "0\t0\t0\t0"},
      {"Uid", "1879048192\t0\t1879048192\t1879048192"},
      {"Gid", "0\t0\t0\t0"},
      {"Groups", "1879048192 999"},
      {"Groups", "0"},
      {"CapInh", "0000000000000001"},
      {"CapPrm", "0000000000200000"},
      {"CapEff", "0000000000200000"},
      {"CapBnd", "00000000a80425fb"},
      {"CapAmb", "0000000000000400"},
      {"NoNewPrivs", "0"},
      {"Seccomp", "0"},
      {"Seccomp_filters", "2"},
  };
  for (const auto& [name, value] : cases) {
    Fields doctored = honest_status();
    doctored[name] = value;
    EXPECT_FALSE(compare_status(plan, status_text(doctored), 3).ok()) << name << " " << value;
  }
  for (const auto& [name, value] : honest_status()) {
    if (name == "Groups") continue;  // none at all is less, not more
    Fields doctored = honest_status();
    doctored.erase(name);
    EXPECT_FALSE(compare_status(plan, status_text(doctored), 3).ok()) << name;
  }
  EXPECT_FALSE(compare_status(plan, "", 3).ok());
}

// point → the rest of its line
std::map<std::string, std::string> honest_mounts() {
  std::map<std::string, std::string> lines = {
      {"/", "0:50 / / ro,relatime master:3 - overlay overlay rw"},
      {"/proc", "0:53 / /proc rw,nosuid,nodev,noexec - proc proc rw"},
      {"/dev", "0:54 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755"},
      {"/dev/pts", "0:55 / /dev/pts rw,nosuid,noexec - devpts devpts rw"},
      {"/dev/mqueue", "0:52 / /dev/mqueue rw,nosuid,nodev,noexec - mqueue mqueue rw"},
      {"/dev/shm", "0:57 / /dev/shm rw,nosuid,nodev,noexec - tmpfs shm rw,size=65536k"},
      {"/sys", "0:45 / /sys ro,nosuid - sysfs sysfs ro"},
      {"/sys/fs/cgroup", "0:56 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755"},
      {"/sys/fs/cgroup/pids", "0:36 / /sys/fs/cgroup/pids ro,nosuid - cgroup cgroup rw,pids"},
      {"/proc/kcore", "0:54 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=65536k"},
      {"/proc/irq", "0:60 / /proc/irq ro - tmpfs tmpfs ro"},
      {"/proc/sys", "0:53 /sys /proc/sys ro,nosuid - proc proc rw"},
      {"/tmp", "0:58 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1048576k,nr_inodes=262144"},
      {"/var/tmp", "0:59 / /var/tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1g"},
      {"/run", "0:61 / /run rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=16384k"},
      {"/data", "0:62 / /data rw,nosuid,nodev - tmpfs tmpfs rw,size=1048576k"},
      {"/run/cofferdam/init",
       "254:0 /run/cofferdam/x/init /run/cofferdam/init ro - ext4 /dev/vda rw"},
      {"/etc/hosts", "254:0 /run/cofferdam/x/files/0 /etc/hosts ro - ext4 /dev/vda rw"},
      {"/root", "0:70 / /root rw,nosuid,nodev - fuse cofferdam rw,user_id=0"},
      {"/root/project", "0:71 / /root/project rw,nosuid,nodev - fuse cofferdam rw,user_id=0"},
      {"/opt", "0:72 / /opt ro,nosuid,nodev - fuse cofferdam rw,user_id=0"}};
  return lines;
}

std::string mountinfo_text(const std::map<std::string, std::string>& lines) {
  std::string text;
  for (const auto& [point, line] : lines) text += "109 61 " + line + "\n";
  return text;
}

const std::map<std::string, std::string> kDevices{
    {"/root", "0:70"}, {"/root/project", "0:71"}, {"/opt", "0:72"}};

TEST(ReadBackOfTheKernel, ThePlannedMountsPass) {
  const auto compared = compare_mounts(workload_plan(), mountinfo_text(honest_mounts()), kDevices);
  EXPECT_TRUE(compared.ok()) << (compared.ok() ? "" : compared.error().message());
}

TEST(ReadBackOfTheKernel, EachOtherMountIsRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"/", "0:50 / / rw,relatime - overlay overlay rw"},
      {"/sys", "0:45 / /sys rw,nosuid - sysfs sysfs rw"},
      {"/sys/fs/cgroup/pids", "0:36 / /sys/fs/cgroup/pids rw,nosuid - cgroup cgroup rw,pids"},
      {"/sys/fs/cgroup", "0:36 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw"},
      {"/proc/irq", "0:53 /irq /proc/irq ro - proc proc rw"},
      {"/proc/irq", "0:60 / /proc/irq rw - tmpfs tmpfs rw"},
      {"/proc/sys", "0:53 /sys /proc/sys rw,nosuid - proc proc rw"},
      {"/tmp", "0:58 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,mode=1777"},
      {"/tmp", "0:58 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=2g"},
      {"/tmp", "0:58 / /tmp rw,nodev - tmpfs tmpfs rw,size=1g"},
      {"/tmp", "254:0 /x /tmp rw,nosuid,nodev - ext4 /dev/vda rw"},
      {"/run", "0:61 / /run rw,nosuid,nodev - tmpfs tmpfs rw,size=16384k"},
      {"/data", "254:0 /volumes/x /data rw,nosuid,nodev - ext4 /dev/vda rw"},
      {"/dev/shm", "0:57 / /dev/shm rw,nosuid,nodev,noexec - tmpfs shm rw,size=10g"},
      {"/dev", "0:6 / /dev rw,nosuid - devtmpfs udev rw"},
      {"/run/cofferdam/init", "254:0 /x /run/cofferdam/init rw - ext4 /dev/vda rw"},
      {"/etc/hosts", "254:0 /x /etc/hosts rw - ext4 /dev/vda rw"},
      {"/root/project", "254:0 /root/project /root/project rw,nosuid,nodev - ext4 /dev/vda rw"},
      {"/root/project", "0:99 / /root/project rw,nosuid,nodev - fuse cofferdam rw"},
      {"/root/project", "0:71 /sub /root/project rw,nosuid,nodev - fuse cofferdam rw"},
      {"/root/project", "0:71 / /root/project rw,nodev - fuse cofferdam rw"},
      {"/root/project", "0:71 / /root/project rw,nosuid - fuse cofferdam rw"},
      {"/opt", "0:72 / /opt rw,nosuid,nodev - fuse cofferdam rw"},
      {"/var/run/docker.sock", "254:0 /run/docker.sock /var/run/docker.sock rw - tmpfs tmpfs rw"},
      {"/host", "254:0 / /host ro - ext4 /dev/vda rw"},
      {"/etc/shadow", "254:0 /etc/shadow /etc/shadow ro - ext4 /dev/vda rw"},
      {"/proc/x", "broken"},
  };
  for (const auto& [point, line] : cases) {
    auto doctored = honest_mounts();
    doctored[point] = line;
    EXPECT_FALSE(compare_mounts(workload_plan(), mountinfo_text(doctored), kDevices).ok()) << line;
  }
}

TEST(ReadBackOfTheKernel, EachMissingMountIsRefused) {
  for (const char* point :
       {"/", "/proc", "/dev", "/dev/shm", "/proc/kcore", "/proc/irq", "/proc/sys", "/tmp", "/data",
        "/run/cofferdam/init", "/etc/hosts", "/root", "/root/project", "/opt"}) {
    auto doctored = honest_mounts();
    doctored.erase(point);
    EXPECT_FALSE(compare_mounts(workload_plan(), mountinfo_text(doctored), kDevices).ok()) << point;
  }
  const std::string twice =
      mountinfo_text(honest_mounts()) + "1 1 0:53 / /proc rw,nosuid,nodev,noexec - proc proc rw\n";
  EXPECT_FALSE(compare_mounts(workload_plan(), twice, kDevices).ok());
  EXPECT_FALSE(compare_mounts(workload_plan(), mountinfo_text(honest_mounts()), {}).ok());
}

NamespaceLinks links(const std::string& suffix) {
  NamespaceLinks made;
  for (const char* name : {"net", "pid", "mnt", "ipc", "uts", "cgroup", "user"}) {
    made[name] = std::string(name) + ":[" + suffix + "]";
  }
  return made;
}

TEST(ReadBackOfTheKernel, OnlyTheNetworkIsShared) {
  const NamespaceLinks host = links("1");
  const NamespaceLinks pause = links("2");
  NamespaceLinks own = links("3");
  own["net"] = pause.at("net");
  own["user"] = host.at("user");
  EXPECT_TRUE(compare_namespaces(host, pause, own).ok());
  for (const char* name : {"net", "pid", "mnt", "ipc", "uts", "cgroup"}) {
    NamespaceLinks doctored = own;
    doctored[name] = host.at(name);
    EXPECT_FALSE(compare_namespaces(host, pause, doctored).ok()) << name;
    doctored[name] = std::string(name) == "net" ? links("4").at(name) : pause.at(name);
    EXPECT_FALSE(compare_namespaces(host, pause, doctored).ok()) << name;
    doctored.erase(name);
    EXPECT_FALSE(compare_namespaces(host, pause, doctored).ok()) << name;
  }
}

TEST(ReadBackOfTheKernel, NoInterfaceButLoopback) {
  const std::string head = "Inter-|   Receive\n face |bytes\n";
  EXPECT_TRUE(compare_interfaces(head + "    lo: 0 0\n").ok());
  EXPECT_TRUE(compare_interfaces(head + "    lo: 0 0\n tunl0: 0 0\n  sit0: 0 0\n").ok());
  EXPECT_FALSE(compare_interfaces(head + "    lo: 0 0\n  eth0: 0 0\n").ok());
  EXPECT_FALSE(compare_interfaces(head).ok());
}

TEST(RunDirectory, TheUppermostMountCounts) {
  const std::string text =
      "1 1 0:40 / /run/cofferdam/x/mounts/home rw - fuse c rw\n"
      "2 1 0:41 / /run/cofferdam/x/mounts/home rw - fuse c rw\n";
  const std::vector<std::string> devices =
      mounted_devices(text, {"/run/cofferdam/x/mounts/home", "/run/cofferdam/x/mounts/opt"});
  EXPECT_EQ(devices, (std::vector<std::string>{"0:41", ""}));
}

}  // namespace
}  // namespace cofferdam::orchestrator::docker
