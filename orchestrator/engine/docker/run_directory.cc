#include "orchestrator/engine/docker/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "common/os/files.h"
#include "common/os/unmount.h"

namespace cofferdam::orchestrator::docker {
namespace {

namespace fs = std::filesystem;

Status make_directory(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0) return Error::from_errno("mkdir " + path);
  if (::chmod(path.c_str(), mode) != 0) return Error::from_errno("chmod " + path);  // umask
  return {};
}

Status make_root() {
  if (::mkdir(kRunRoot, 0711) != 0 && errno != EEXIST) {
    return Error::from_errno(std::string("mkdir ") + kRunRoot);
  }
  struct stat st {};
  if (::lstat(kRunRoot, &st) != 0) return Error::from_errno(kRunRoot);
  if (!S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error(std::string(kRunRoot) + " is not a directory that only root can write");
  }
  return {};
}

Status make_file(const std::string& path, std::string_view content, mode_t mode) {
  TRY_ASSIGN(const os::UniqueFd fd, os::open_file(path, O_WRONLY | O_CREAT | O_EXCL, mode));
  TRY(os::write_all(fd.get(), content).context(path));
  if (::fchmod(fd.get(), mode) != 0) return Error::from_errno("chmod " + path);
  return {};
}

std::string make_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 8; ++i) token += std::to_string(random()) + "\n";
  return token;
}

Status fill(const RunLayout& layout, const RunContents& contents) {
  TRY(make_directory(layout.directory + "/files", 0711));
  TRY(make_directory(layout.directory + "/mounts", 0711));
  TRY_ASSIGN(const std::string program, os::read_file(contents.program));
  TRY(make_file(layout.init(), program, 0555));
  TRY(make_file(layout.token(), make_token(), 0400));
  for (std::size_t i = 0; i < contents.files.size(); ++i) {
    TRY(make_file(layout.file(i), contents.files[i], 0444));
  }
  for (const std::string& name : contents.mount_names) {
    TRY(make_directory(layout.mount(name), 0711));
  }
  return {};
}

}  // namespace

Status make_run_directory(const RunLayout& layout, const RunContents& contents) {
  TRY(make_root());
  TRY(make_directory(layout.directory, 0700));
  const auto filled = fill(layout, contents);
  if (!filled.ok()) (void)remove_run_directory(layout).ok();
  return filled;
}

Status remove_run_directory(const RunLayout& layout) {
  std::error_code fault;
  const fs::path mounts = layout.directory + "/mounts";
  // rmdir, never a removal of a tree: below a mount that stayed lie the workload's files.
  for (fs::directory_iterator it(mounts, fault), end; !fault && it != end; it.increment(fault)) {
    TRY(os::unmount_if_mounted(it->path()));
    if (::rmdir(it->path().c_str()) != 0 && errno != ENOENT) {
      return Error::from_errno("remove " + it->path().string());
    }
  }
  if (::rmdir(mounts.c_str()) != 0 && errno != ENOENT) {
    return Error::from_errno("remove " + mounts.string());
  }
  return os::remove_tree(layout.directory);
}

std::vector<std::string> mounted_devices(const std::string& mountinfo,
                                         const std::vector<std::string>& paths) {
  std::vector<std::string> devices(paths.size());
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id;
    std::string parent;
    std::string device;
    std::string root;
    std::string point;
    if (!(words >> id >> parent >> device >> root >> point)) continue;
    const auto found = std::find(paths.begin(), paths.end(), point);
    // A later line lies over an earlier one.
    if (found != paths.end()) devices[static_cast<std::size_t>(found - paths.begin())] = device;
  }
  return devices;
}

}  // namespace cofferdam::orchestrator::docker
