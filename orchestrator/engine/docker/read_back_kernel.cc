// What the kernel says that runs.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <sstream>
#include <vector>

#include "common/base/escape.h"
#include "orchestrator/engine/docker/read_back.h"

namespace cofferdam::orchestrator::docker {
namespace {

Error differs(const std::string& what, const std::string& found, const std::string& planned) {
  return Error("the container is not what was planned: " + what + " is " +
               escape_for_terminal(found) + ", planned " + planned);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

struct MountEntry {
  std::string device;  // major:minor
  std::string root;
  std::string point;
  std::set<std::string> options;
  std::string type;
  std::set<std::string> super_options;
};

// "\040" and the like (proc_pid_mountinfo(5)).
std::string unescape(const std::string& text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

Result<MountEntry> parse_mount(const std::string& line) {
  const auto words = words_of(line);
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 10 || dash - words.begin() < 6 || words.end() - dash < 4) {
    return Error("mountinfo: " + escape_for_terminal(line));
  }
  const auto set_of = [](const std::string& text) {
    const auto parts = split(text, ',');
    return std::set<std::string>(parts.begin(), parts.end());
  };
  return MountEntry{words[2],         unescape(words[3]), unescape(words[4]),
                    set_of(words[5]), *(dash + 1),        set_of(*(dash + 3))};
}

// "size=980k" of a tmpfs in bytes; nothing when it is not limited.
std::optional<std::uint64_t> size_of(const MountEntry& mount) {
  for (const std::string& option : mount.super_options) {
    if (!option.starts_with("size=")) continue;
    char* end = nullptr;
    std::uint64_t value = std::strtoull(option.c_str() + 5, &end, 10);
    if (*end == 'k') value <<= 10U;
    if (*end == 'm') value <<= 20U;
    if (*end == 'g') value <<= 30U;
    return value;
  }
  return std::nullopt;
}

class MountComparison final {
 public:
  MountComparison(const ContainerPlan& plan, const std::map<std::string, std::string>& devices)
      : plan_(plan), devices_(devices) {}

  Status take(const MountEntry& mount) {
    if (!seen_.insert(mount.point).second) {
      return differs("mount " + mount.point, "there twice", "once");
    }
    for (const BindPlan& bind : plan_.binds) {
      if (bind.target == mount.point) return take_bind(bind, mount);
    }
    for (const TmpfsPlan& tmpfs : plan_.tmpfs) {
      if (tmpfs.target == mount.point) {
        if (!tmpfs.exec) TRY(require(mount, "noexec"));
        return take_tmpfs(mount, tmpfs.bytes);
      }
    }
    if (contains(plan_.masked_paths, mount.point)) return take_mask(mount);
    if (contains(plan_.readonly_paths, mount.point)) return require(mount, "ro");
    return take_usual(mount);
  }

  Status all_seen() const {
    std::vector<std::string> planned = plan_.masked_paths;
    planned.insert(planned.end(), plan_.readonly_paths.begin(), plan_.readonly_paths.end());
    for (const BindPlan& bind : plan_.binds) planned.push_back(bind.target);
    for (const TmpfsPlan& tmpfs : plan_.tmpfs) planned.push_back(tmpfs.target);
    for (const char* path : {"/", "/proc", "/dev", "/dev/shm"}) planned.emplace_back(path);
    for (const std::string& path : planned) {
      if (!seen_.contains(path)) return differs("mount " + path, "missing", "there");
    }
    return {};
  }

 private:
  static bool contains(const std::vector<std::string>& paths, const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  }
  static Status require(const MountEntry& mount, const char* option) {
    if (mount.options.contains(option)) return {};
    std::string found;
    for (const auto& word : mount.options) found += (found.empty() ? "" : ",") + word;
    return differs("mount " + mount.point, found, option);
  }
  static Status require_type(const MountEntry& mount, const std::string& type) {
    if (mount.type == type) return {};
    return differs("file system at " + mount.point, mount.type, type);
  }

  Status take_bind(const BindPlan& bind, const MountEntry& mount) const {
    if (!bind.writable) TRY(require(mount, "ro"));
    if (!bind.fuse) return {};
    TRY(require_type(mount, "fuse"));
    TRY(require(mount, "nosuid"));
    TRY(require(mount, "nodev"));
    const auto device = devices_.find(bind.target);
    if (device == devices_.end() || device->second != mount.device) {
      return differs("device of " + mount.point, mount.device,
                     device == devices_.end() ? "none" : device->second);
    }
    if (mount.root != "/") return differs("root of " + mount.point, mount.root, "/");
    return {};
  }

  static Status take_tmpfs(const MountEntry& mount, std::uint64_t bytes) {
    TRY(require_type(mount, "tmpfs"));
    TRY(require(mount, "nosuid"));
    TRY(require(mount, "nodev"));
    const auto size = size_of(mount);
    if (!size || *size == 0 || *size > bytes) {
      return differs("size of " + mount.point, size ? std::to_string(*size) : "unlimited",
                     std::to_string(bytes));
    }
    return {};
  }

  // An empty read-only tmpfs over a directory, /dev/null over a file.
  static Status take_mask(const MountEntry& mount) {
    TRY(require_type(mount, "tmpfs"));
    if (mount.root == "/null") return {};
    return require(mount, "ro");
  }

  Status take_usual(const MountEntry& mount) const {
    struct Usual {
      const char* point;
      const char* type;
      const char* option;  // required; "" for none
    };
    constexpr std::array<Usual, 5> kUsual{{{"/proc", "proc", "nosuid"},
                                           {"/dev", "tmpfs", "nosuid"},
                                           {"/dev/pts", "devpts", "nosuid"},
                                           {"/dev/mqueue", "mqueue", "nosuid"},
                                           {"/sys", "sysfs", "ro"}}};
    if (mount.point == "/") return require(mount, "ro");
    if (mount.point == "/dev/shm") return take_tmpfs(mount, plan_.shm_bytes);
    for (const Usual& usual : kUsual) {
      if (mount.point != usual.point) continue;
      TRY(require_type(mount, usual.type));
      return require(mount, usual.option);
    }
    // Version 1: a directory of links and mounts, each hierarchy read only. Version 2: one.
    if (mount.point == "/sys/fs/cgroup" && mount.type == "tmpfs") return require(mount, "nosuid");
    if (mount.point.starts_with("/sys/fs/cgroup") &&
        (mount.type == "cgroup" || mount.type == "cgroup2")) {
      return require(mount, "ro");
    }
    return Error("the container is not what was planned: " + escape_for_terminal(mount.point) +
                 " is mounted (" + escape_for_terminal(mount.type) + ")");
  }

  const ContainerPlan& plan_;
  const std::map<std::string, std::string>& devices_;
  std::set<std::string> seen_;
};

}  // namespace

Status compare_status(const ContainerPlan& plan, const std::string& status, int filters) {
  std::map<std::string, std::string> fields;
  for (const std::string& line : split(status, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string value;
    for (const auto& word : words_of(line.substr(colon + 1))) {
      value += (value.empty() ? "" : " ") + word;
    }
    fields[line.substr(0, colon)] = value;
  }
  const auto four = [](std::uint32_t id) {
    const std::string text = std::to_string(id);
    return text + " " + text + " " + text + " " + text;
  };
  constexpr const char* kNone = "0000000000000000";
  const std::vector<std::pair<const char*, std::string>> wanted = {
      {"Uid", four(plan.uid)}, {"Gid", four(plan.gid)}, {"CapInh", kNone},
      {"CapPrm", kNone},       {"CapEff", kNone},       {"CapBnd", kNone},
      {"CapAmb", kNone},       {"NoNewPrivs", "1"},     {"Seccomp", "2"}};
  for (const auto& [name, planned] : wanted) {
    if (fields[name] != planned) return differs(std::string(name), fields[name], planned);
  }
  if (plan.uid == 0 || plan.gid == 0) return differs("Uid", "0", "not 0");
  const std::string& groups = fields["Groups"];
  if (!groups.empty() && groups != std::to_string(plan.gid)) {
    return differs("Groups", groups, std::to_string(plan.gid));
  }
  // Linux 5.9 tells the number.
  if (std::atoi(fields["Seccomp_filters"].c_str()) < filters) {
    return differs("Seccomp_filters", fields["Seccomp_filters"], std::to_string(filters));
  }
  return {};
}

Status compare_mounts(const ContainerPlan& plan, const std::string& mountinfo,
                      const std::map<std::string, std::string>& fuse_devices) {
  MountComparison compare(plan, fuse_devices);
  for (const std::string& line : split(mountinfo, '\n')) {
    if (line.empty()) continue;
    TRY_ASSIGN(const MountEntry mount, parse_mount(line));
    TRY(compare.take(mount));
  }
  return compare.all_seen();
}

Status compare_namespaces(const NamespaceLinks& host, const NamespaceLinks& pause,
                          const NamespaceLinks& container) {
  for (const char* name : {"net", "pid", "mnt", "ipc", "uts", "cgroup"}) {
    const auto own = container.find(name);
    const auto outside = host.find(name);
    const auto other = pause.find(name);
    if (own == container.end() || outside == host.end() || other == pause.end()) {
      return Error(std::string("the container's namespaces cannot be told: ") + name);
    }
    if (own->second == outside->second) {
      return differs(std::string(name) + " namespace", "the host's", "its own");
    }
    const bool shared = own->second == other->second;
    const bool planned = std::string_view(name) == "net";
    if (shared != planned) {
      return differs(std::string(name) + " namespace", shared ? "the pause container's" : "its own",
                     planned ? "the pause container's" : "its own");
    }
  }
  return {};
}

Status compare_interfaces(const std::string& net_dev) {
  constexpr std::array kFallbackTunnels = {"tunl0",    "gre0",    "gretap0", "erspan0", "ip_vti0",
                                           "ip6_vti0", "ip6tnl0", "ip6gre0", "sit0"};
  bool loopback = false;
  for (const std::string& line : split(net_dev, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto words = words_of(line.substr(0, colon));
    const std::string name = words.empty() ? "" : words.front();
    if (name == "lo") {
      loopback = true;
    } else if (std::find(kFallbackTunnels.begin(), kFallbackTunnels.end(), name) ==
               kFallbackTunnels.end()) {
      return differs("network interface", name, "only lo");
    }
  }
  if (!loopback) return differs("network interface lo", "missing", "there");
  return {};
}

}  // namespace cofferdam::orchestrator::docker
