#include "orchestrator/steps/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "common/os/files.h"

namespace cofferdam::orchestrator {
namespace {

constexpr int kCpuPeriodUs = 100000;
using Settings = std::vector<std::pair<std::string, std::string>>;  // file, value

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Status write_setting(const std::filesystem::path& path, const std::string& value) {
  TRY_ASSIGN(const os::UniqueFd fd, os::open_file(path, O_WRONLY));
  if (::write(fd.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return Error::from_errno(path.string());
  }
  return {};
}

// Where the group lies in the file system: the mount shows the hierarchy from `root` on.
std::filesystem::path locate(const std::string& mount_point, const std::string& root,
                             std::string group) {
  if (root != "/" && group.rfind(root, 0) == 0) group.erase(0, root.size());
  while (!group.empty() && group.front() == '/') group.erase(0, 1);
  return group.empty() ? std::filesystem::path(mount_point)
                       : std::filesystem::path(mount_point) / group;
}

}  // namespace

std::map<std::string, CgroupPlace> parse_cgroup_places(const std::string& cgroup,
                                                       const std::string& mountinfo) {
  std::map<std::string, std::string> groups;  // controller ("" unified) → path
  for (const std::string& line : split(cgroup, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) groups[""] = path;
    for (const std::string& name : split(controllers, ',')) groups[name] = path;
  }
  std::map<std::string, CgroupPlace> places;
  for (const std::string& line : split(mountinfo, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    if (after[0] == "cgroup2" && groups.contains("")) {
      places[""] = {locate(before[4], before[3], groups[""]), true};
    } else if (after[0] == "cgroup") {
      for (const std::string& option : split(after[2], ',')) {
        if (groups.contains(option)) {
          places[option] = {locate(before[4], before[3], groups[option]), false};
        }
      }
    }
  }
  return places;
}

Status Cgroup::use(const std::map<std::string, CgroupPlace>& places, const std::string& controller,
                   const std::string& sandbox_id, const Settings& version1,
                   const Settings& version2) {
  const auto own = places.find(controller);
  const auto unified = places.find("");
  std::filesystem::path directory;
  const Settings* settings = &version1;
  if (own != places.end()) {
    directory = own->second.directory / ("cofferdam-" + sandbox_id);
  } else if (unified != places.end()) {
    // A group with processes of its own may have no limited children: ours becomes a sibling.
    struct stat st {};
    const auto& group = unified->second.directory;
    const bool is_root = ::stat((group / "cgroup.type").c_str(), &st) != 0;
    const auto parent = is_root ? group : group.parent_path();
    TRY_ASSIGN(const std::string enabled, os::read_file(parent / "cgroup.subtree_control"));
    if ((" " + enabled).find(" " + controller) == std::string::npos) {
      TRY(write_setting(parent / "cgroup.subtree_control", "+" + controller));
    }
    directory = parent / ("cofferdam-" + sandbox_id);
    settings = &version2;
  } else {
    return Error("no control group hierarchy with " + controller);
  }
  if (record_) TRY(record_(directory));
  if (::mkdir(directory.c_str(), 0755) == 0) {
    directories_.push_back(directory);
  } else if (errno != EEXIST) {
    return Error::from_errno(directory.string());
  } else if (std::find(directories_.begin(), directories_.end(), directory) == directories_.end()) {
    return Error(directory.string() + " already exists");
  }
  for (const auto& [file, value] : *settings) {
    const bool optional =
        file.find("swap") != std::string::npos || file.find("memsw") != std::string::npos;
    auto written = write_setting(directory / file, value);
    if (!written.ok() && !optional) return written.error();
  }
  return {};
}

Result<Cgroup> Cgroup::create(const LimitsPlan& limits, const std::string& sandbox_id,
                              Record record) {
  Cgroup group;
  group.record_ = std::move(record);
  if (!limits.pids && !limits.memory_bytes && !limits.cpus) return group;
  TRY_ASSIGN(const std::string own, os::read_file("/proc/self/cgroup"));
  TRY_ASSIGN(const std::string mounts, os::read_file("/proc/self/mountinfo"));
  const auto places = parse_cgroup_places(own, mounts);
  const auto fail = [&group](const char* what, const Error& error) {
    group.remove();
    return Error(std::string(what) + " cannot be limited: " + error.message() +
                     " (start as root, or with a delegated control group: "
                     "systemd-run --user --scope -p Delegate=yes)",
                 error.error_number());
  };
  if (limits.pids) {
    const std::string value = std::to_string(*limits.pids);
    group.limits_pids_ =
        group.use(places, "pids", sandbox_id, {{"pids.max", value}}, {{"pids.max", value}}).ok();
  }
  if (limits.memory_bytes) {
    const std::string value = std::to_string(*limits.memory_bytes);
    const auto done =
        group.use(places, "memory", sandbox_id,
                  {{"memory.limit_in_bytes", value}, {"memory.memsw.limit_in_bytes", value}},
                  {{"memory.max", value}, {"memory.swap.max", "0"}});
    if (!done.ok()) return fail("memory", done.error());
  }
  if (limits.cpus) {
    const std::string quota = std::to_string(static_cast<long>(*limits.cpus * kCpuPeriodUs));
    const std::string period = std::to_string(kCpuPeriodUs);
    const auto done = group.use(places, "cpu", sandbox_id,
                                {{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}},
                                {{"cpu.max", quota + " " + period}});
    if (!done.ok()) return fail("cpus", done.error());
  }
  return group;
}

Result<std::vector<os::UniqueFd>> Cgroup::entries() const {
  std::vector<os::UniqueFd> entries;
  for (const auto& directory : directories_) {
    auto entry = os::open_file(directory / "tasks", O_WRONLY);
    if (!entry.ok()) entry = os::open_file(directory / "cgroup.procs", O_WRONLY);
    if (!entry.ok()) return entry.error();
    entries.push_back(std::move(*entry));
  }
  return entries;
}

std::vector<std::string> Cgroup::directories() const {
  std::vector<std::string> paths;
  for (const auto& directory : directories_) paths.push_back(directory.string());
  return paths;
}

std::vector<std::string> limit_hits_in(const std::vector<std::filesystem::path>& directories) {
  struct Counter {
    const char* limit;
    const char* file;
    const char* key;
  };
  constexpr Counter kCounters[] = {{"pids", "pids.events", "max"},
                                   {"memory", "memory.events", "oom_kill"},
                                   {"memory", "memory.oom_control", "oom_kill"}};
  std::vector<std::string> names;
  for (const auto& directory : directories) {
    for (const Counter& counter : kCounters) {
      const auto text = os::read_file(directory / counter.file);
      if (!text.ok()) continue;
      for (const std::string& line : split(*text, '\n')) {
        const auto words = split(line, ' ');
        if (words.size() == 2 && words[0] == counter.key && words[1] != "0") {
          names.emplace_back(counter.limit);
        }
      }
    }
  }
  return names;
}

void Cgroup::remove() {
  constexpr std::chrono::milliseconds kPause{20};
  constexpr int kTries = 250;
  for (const auto& directory : directories_) {
    (void)write_setting(directory / "cgroup.kill", "1").ok();  // version 2, Linux 5.14
    for (int i = 0; i < kTries; ++i) {
      if (::rmdir(directory.c_str()) == 0 || errno != EBUSY) break;
      std::this_thread::sleep_for(kPause);
    }
  }
  directories_.clear();
}

}  // namespace cofferdam::orchestrator
