#include "orchestrator/init/staging.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/os/files.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::init {
namespace {

constexpr std::uint64_t kStagingBytes = 128U << 20U;  // the init and the files placed inside
constexpr std::uint64_t kBytesPerInode = 4096;
constexpr std::uint64_t kFewestInodes = 16384;
constexpr off_t kLargestCopy = 4 << 20;

Status mount_tmpfs(const std::string& target, std::uint64_t bytes, unsigned long flags,
                   const char* mode) {
  const std::uint64_t inodes = std::max(kFewestInodes, bytes / kBytesPerInode);
  const std::string options =
      "size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(inodes) + ",mode=" + mode;
  if (::mount("tmpfs", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | flags, options.c_str()) !=
      0) {
    return Error::from_errno("mount tmpfs at " + target);
  }
  return {};
}

Status make_directory(const char* path) {
  if (::mkdir(path, 0755) != 0) return Error::from_errno(std::string("mkdir ") + path);
  return {};
}

Status copy_bytes(int from, int to, std::uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t put = ::sendfile(to, from, nullptr, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Error::from_errno("copy");
    if (put == 0) return Error("copy: too short");
    bytes -= static_cast<std::uint64_t>(put);
  }
  return {};
}

std::string staged(const std::string& path) {
  return kStaging + path;
}

// The directories between /etc and the name, in the staged one.
Status make_parents(const std::string& path) {
  for (auto slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = staged(path.substr(0, slash));
    if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) return Error::from_errno(parent);
  }
  return {};
}

// A file that cannot be read here is bound: it cannot be read inside either, and is there.
Status bind_or_copy(const std::string& path) {
  const std::string to = staged(path);
  auto from = os::open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat st {};
  if (from.ok() && ::fstat(from->get(), &st) != 0) return Error::from_errno(path);
  const bool is_file = from.ok() && S_ISREG(st.st_mode);
  if (is_file && st.st_size <= kLargestCopy) {
    TRY_ASSIGN(const os::UniqueFd copy, os::open_file(to, O_WRONLY | O_CREAT | O_EXCL, 0444));
    return copy_bytes(from->get(), copy.get(), static_cast<std::uint64_t>(st.st_size)).context(to);
  }
  if (::lstat(path.c_str(), &st) != 0) return Error::from_errno(path);
  if (S_ISDIR(st.st_mode)) {
    TRY(make_directory(to.c_str()));
  } else {
    TRY_ASSIGN(const os::UniqueFd place, os::open_file(to, O_WRONLY | O_CREAT | O_EXCL, 0444));
  }
  if (::mount(path.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return Error::from_errno("bind " + path);
  }
  return {};
}

}  // namespace

Status make_staging(const StagingSizes& sizes, int program) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return Error::from_errno("make mounts private");
  }
  TRY(mount_tmpfs(kStaging, kStagingBytes, 0, "0755"));
  for (const char* path : {kStagedMounts, kStagedFiles, kStagedTmp, kStagedShm, kStagedNothing}) {
    TRY(make_directory(path));
  }
  TRY(mount_tmpfs(kStagedTmp, sizes.tmp_bytes, sizes.tmp_exec ? 0 : MS_NOEXEC, "1777"));
  TRY(mount_tmpfs(kStagedShm, sizes.shm_bytes, 0, "1777"));
  TRY_ASSIGN(const os::UniqueFd empty,
             os::open_file(kStagedEmpty, O_WRONLY | O_CREAT | O_EXCL, 0000));
  struct stat st {};
  if (::fstat(program, &st) != 0) return Error::from_errno("own program");
  TRY_ASSIGN(const os::UniqueFd copy,
             os::open_file(kStagedInit, O_WRONLY | O_CREAT | O_EXCL, 0555));
  return copy_bytes(program, copy.get(), static_cast<std::uint64_t>(st.st_size));
}

Status stage_etc(const EtcRequest& etc) {
  if (::mkdir(kStagedEtc, 0755) != 0) return Error::from_errno(std::string("mkdir ") + kStagedEtc);
  for (const auto& [path, target] : etc.links) {
    TRY(make_parents(path));
    if (::symlink(target.c_str(), staged(path).c_str()) != 0) return Error::from_errno(path);
  }
  for (const std::string& path : etc.binds) {
    TRY(make_parents(path));
    TRY(bind_or_copy(path));
  }
  for (const std::string& path : etc.files) TRY(make_parents(path));
  return {};
}

Status stage_files(int contents, const std::vector<std::uint64_t>& sizes,
                   const std::vector<std::string>& paths, const EtcRequest& etc) {
  if (::lseek(contents, 0, SEEK_SET) != 0) return Error::from_errno("contents of files");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool is_of_etc =
        std::find(etc.files.begin(), etc.files.end(), paths[i]) != etc.files.end();
    const std::string path =
        is_of_etc ? staged(paths[i]) : std::string(kStagedFiles) + "/" + std::to_string(i);
    TRY_ASSIGN(const os::UniqueFd file, os::open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0444));
    TRY(copy_bytes(contents, file.get(), sizes[i]).context(path));
  }
  return {};
}

Status mount_fuse(int device, const std::string& target, bool read_only) {
  const std::string options =
      "fd=" + std::to_string(device) +
      ",rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other";
  unsigned long flags = MS_NOSUID | MS_NODEV;
  if (read_only) flags |= MS_RDONLY;
  if (::mount("cofferdam", target.c_str(), "fuse", flags, options.c_str()) != 0) {
    return Error::from_errno("mount FUSE at " + target);
  }
  return {};
}

}  // namespace cofferdam::init
