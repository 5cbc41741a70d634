#include "orchestrator/init/execute_rules.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#ifndef LANDLOCK_ACCESS_FS_REFER  // Linux 5.19
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif

namespace cofferdam::init {
namespace {

constexpr const char* kLoaderTrees[] = {"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib"};

Status allow(int rules, const std::string& path, std::uint64_t access) {
  const os::UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return Error::from_errno(path);
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = fd.get();
  if (::syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return Error::from_errno("landlock rule for " + path);
  }
  return {};
}

// ld-linux-x86-64.so.2, ld-musl-x86_64.so.1, ld-2.31.so: what kernels execute beside a program.
bool is_loader(std::string_view name) {
  return name.starts_with("ld-") && name.find(".so") != std::string_view::npos;
}

// In the directory itself, and in those of an architecture below it.
Status allow_loaders(int rules, const std::string& tree, bool below) {
  DIR* const dir = ::opendir(tree.c_str());
  if (dir == nullptr) return {};
  Status status;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name(entry->d_name);
    const std::string path = tree + "/" + entry->d_name;
    struct stat st {};
    if (is_loader(name) && ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode)) {
      status = allow(rules, path, LANDLOCK_ACCESS_FS_EXECUTE);
    } else if (below && name.find("-linux-") != std::string_view::npos) {
      status = allow_loaders(rules, path, false);
    }
    if (!status.ok()) break;
  }
  ::closedir(dir);
  return status;
}

}  // namespace

Result<os::UniqueFd> make_execute_rules(const std::vector<std::string>& paths) {
  landlock_ruleset_attr handled{};
  handled.handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_REFER;
  os::UniqueFd rules(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0)));
  if (!rules) return Error::from_errno("landlock ruleset");
  TRY(allow(rules.get(), "/", LANDLOCK_ACCESS_FS_REFER));
  for (const char* tree : kLoaderTrees) TRY(allow_loaders(rules.get(), tree, true));
  for (const std::string& path : paths) {
    TRY(allow(rules.get(), path, LANDLOCK_ACCESS_FS_EXECUTE).context("process.executables"));
  }
  return rules;
}

bool enforce_execute_rules(int rules) {
  return ::syscall(SYS_landlock_restrict_self, rules, 0) == 0;
}

}  // namespace cofferdam::init
