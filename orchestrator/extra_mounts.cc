#include "orchestrator/extra_mounts.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "common/os/files.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSubmounts = 32;

// "\040" and the like (proc_pid_mountinfo(5)).
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_octal = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(i + 1) && is_octal(i + 2) &&
        is_octal(i + 3)) {
      out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                      (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace

bool names_a_place(std::string_view pattern) {
  return pattern.substr(0, pattern.empty() ? 0 : pattern.size() - 1).find('/') !=
         std::string_view::npos;
}

Status settle_mounts(Manifest* manifest) {
  for (ExtraMount& mount : manifest->mounts) {
    std::error_code code;
    const fs::path real = fs::canonical(mount.source, code);
    if (code) return Error::from_errno("mounts: " + mount.source, code.value());
    if (real != mount.source && !mount.follow_symlink) {
      return Error("mounts: " + mount.source + " is a link; name what it leads to: " +
                   real.string() + ", or say `follow_symlink: true`");
    }
    if (!fs::is_directory(real, code)) return Error::from_errno("mounts: " + mount.source, ENOTDIR);
    mount.source = real.string();
    for (const char* kernels : {"/proc", "/sys", "/dev"}) {
      if (real == kernels || mount.source.starts_with(std::string(kernels) + "/")) {
        return Error("mounts: " + mount.source + ": nothing of " + kernels +
                     " can be a source; the sandbox has its own");
      }
    }
  }
  return {};
}

std::vector<std::string> mount_points_below(std::string_view mountinfo,
                                            std::string_view directory) {
  const std::string prefix = directory == "/" ? "/" : std::string(directory) + "/";
  std::set<std::string> found;
  while (!mountinfo.empty()) {
    const std::size_t end = mountinfo.find('\n');
    std::string_view line = mountinfo.substr(0, end);
    mountinfo = end == std::string_view::npos ? std::string_view() : mountinfo.substr(end + 1);
    for (int field = 0; field < 4 && !line.empty(); ++field) {
      const std::size_t space = line.find(' ');
      line = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
    }
    std::string point = unescaped(line.substr(0, line.find(' ')));
    if (point.starts_with(prefix) && point.size() > prefix.size()) found.insert(std::move(point));
  }
  return {found.begin(), found.end()};
}

Result<std::vector<ExtraMount>> find_submounts(const Manifest& manifest) {
  std::vector<ExtraMount> out;
  const bool any = std::any_of(manifest.mounts.begin(), manifest.mounts.end(),
                               [](const ExtraMount& mount) { return mount.recursive; });
  if (!any) return out;
  TRY_ASSIGN(const std::string table, os::read_file("/proc/self/mountinfo"));
  for (const ExtraMount& mount : manifest.mounts) {
    if (!mount.recursive) continue;
    // Each file system below is a mount of its own, in which such a pattern would mean another
    // place.
    if (std::any_of(mount.hide.begin(), mount.hide.end(), names_a_place)) {
      return Error("mounts: " + mount.source +
                   ": a `hide` pattern with a / in it cannot stand beside `recursive: true`. "
                   "Remedy: hide by name, or list what lies below as mounts of their own");
    }
    for (const std::string& point : mount_points_below(table, mount.source)) {
      std::error_code code;
      if (!fs::is_directory(point, code)) continue;
      ExtraMount below = mount;
      below.source = point;
      below.target = mount.target + point.substr(mount.source.size());
      out.push_back(std::move(below));
    }
  }
  if (out.size() > kMaxSubmounts) {
    return Error("mounts: more than " + std::to_string(kMaxSubmounts) +
                 " file systems lie below recursive mounts");
  }
  return out;
}

}  // namespace cofferdam::orchestrator
