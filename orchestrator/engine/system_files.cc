#include "orchestrator/engine/system_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "common/os/files.h"

namespace cofferdam::orchestrator {
namespace {

constexpr const char* kTrees[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};

// What programs need to find their parts; nothing that holds a secret or names a host of the
// user's.
constexpr const char* kEtcNames[] = {"/etc/alternatives",
                                     "/etc/bash.bashrc",
                                     "/etc/ca-certificates",
                                     "/etc/ca-certificates.conf",
                                     "/etc/crypto-policies",
                                     "/etc/debian_version",
                                     "/etc/ethertypes",
                                     "/etc/fonts",
                                     "/etc/gai.conf",
                                     "/etc/host.conf",
                                     "/etc/inputrc",
                                     "/etc/java-11-openjdk",
                                     "/etc/java-17-openjdk",
                                     "/etc/java-21-openjdk",
                                     "/etc/java-25-openjdk",
                                     "/etc/ld.so.cache",
                                     "/etc/ld.so.conf",
                                     "/etc/ld.so.conf.d",
                                     "/etc/localtime",
                                     "/etc/login.defs",
                                     "/etc/lsb-release",
                                     "/etc/magic",
                                     "/etc/magic.mime",
                                     "/etc/mailcap",
                                     "/etc/maven",
                                     "/etc/mime.types",
                                     "/etc/networks",
                                     "/etc/os-release",
                                     "/etc/perl",
                                     "/etc/pki/ca-trust",
                                     "/etc/pki/tls/certs",
                                     "/etc/profile",
                                     "/etc/protocols",
                                     "/etc/python3",
                                     "/etc/python3.11",
                                     "/etc/python3.13",
                                     "/etc/rpc",
                                     "/etc/services",
                                     "/etc/shells",
                                     "/etc/ssl/certs",
                                     "/etc/ssl/openssl.cnf",
                                     "/etc/terminfo",
                                     "/etc/timezone",
                                     "/etc/vim",
                                     "/etc/xattr.conf",
                                     "/etc/xml"};

struct CloseDirectory {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Directories that cannot be opened are skipped: the workload has no more rights than the caller.
void scan(const std::string& root, std::vector<std::string>& masks) {
  std::vector<std::string> pending{root};
  while (!pending.empty()) {
    const std::string path = std::move(pending.back());
    pending.pop_back();
    const Directory dir(::opendir(path.c_str()));
    if (!dir) continue;
    while (const dirent* entry = ::readdir(dir.get())) {
      if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
      unsigned char type = entry->d_type;
      if (type == DT_UNKNOWN) {
        struct stat st {};
        if (::fstatat(::dirfd(dir.get()), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        type = static_cast<unsigned char>(IFTODT(st.st_mode));
      }
      if (type == DT_REG || type == DT_LNK) continue;
      std::string child = path + "/" + entry->d_name;
      if (type == DT_DIR) {
        pending.push_back(std::move(child));
      } else if (type == DT_SOCK || type == DT_FIFO) {
        masks.push_back(std::move(child));
      }
    }
  }
}

Result<std::string> read_link(const std::string& path) {
  std::error_code fault;
  const auto target = std::filesystem::read_symlink(path, fault);
  if (fault) return Error::from_errno(path, fault.value());
  return target.string();
}

}  // namespace

Result<SystemTrees> find_system_trees() {
  SystemTrees trees;
  const auto add = [&trees](const std::string& path) -> Status {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0) return {};
    if (S_ISLNK(st.st_mode)) {
      TRY_ASSIGN(std::string target, read_link(path));
      trees.symlinks.emplace_back(path, std::move(target));
      return {};
    }
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) return {};
    if (st.st_uid != 0 || (st.st_mode & S_IWOTH) != 0) {
      return Error(path + " is not owned by root or is writable by everybody");
    }
    trees.binds.push_back(path);
    return {};
  };
  for (const char* path : kTrees) TRY(add(path));
  for (const char* path : kEtcNames) TRY(add(path));
  return trees;
}

std::vector<std::string> SystemTrees::large() const {
  std::vector<std::string> out;
  for (const char* path : kTrees) {
    const bool bound = std::find(binds.begin(), binds.end(), path) != binds.end();
    if (bound) out.emplace_back(path);
  }
  return out;
}

void find_masks(const std::vector<std::string>& shielded, SystemTrees* trees) {
  for (const std::string& path : trees->binds) {
    if (std::find(shielded.begin(), shielded.end(), path) != shielded.end()) continue;
    struct stat st {};
    if (::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) scan(path, trees->masks);
  }
}

std::map<std::string, std::string> make_etc_files(const Plan& plan) {
  const std::string uid = std::to_string(plan.ids.inside_uid);
  const std::string gid = std::to_string(plan.ids.inside_gid);
  const std::string& user = plan.user_name;
  std::string passwd;
  std::string group;
  if (plan.ids.inside_uid != 0) passwd += "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n";
  if (plan.ids.inside_gid != 0) group += "root:x:0:\n";
  passwd += user + ":x:" + uid + ":" + gid + "::" + plan.home + ":/bin/sh\n";
  group += user + ":x:" + gid + ":\n";
  passwd += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
  group += "nogroup:x:65534:\n";
  std::map<std::string, std::string> files;
  files["/etc/passwd"] = passwd;
  files["/etc/group"] = group;
  files["/etc/hostname"] = plan.hostname + "\n";
  files["/etc/resolv.conf"] = "nameserver 127.0.0.1\n";
  files["/etc/hosts"] = "127.0.0.1 localhost " + plan.hostname +
                        "\n::1 localhost ip6-localhost ip6-loopback " + plan.hostname + "\n";
  files["/etc/nsswitch.conf"] =
      "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
      "protocols: files\nservices: files\nethers: files\nrpc: files\n";
  return files;
}

}  // namespace cofferdam::orchestrator
