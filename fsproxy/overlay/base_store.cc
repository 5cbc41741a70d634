#include "fsproxy/overlay/base_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/os/files.h"

namespace cofferdam::overlay {
namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr const char* kStaged = "base";  // no object of upper is staged under this name

std::int64_t bytes_of(int dir_fd, const char* name) {
  struct stat st {};
  if (::fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return static_cast<std::int64_t>(st.st_blocks) * 512;
}

bool is_full(int number) {
  return number == ENOSPC || number == EDQUOT;
}

}  // namespace

Status BaseStore::write_whole(const char* staged, std::string_view content) {
  (void)::unlinkat(work_dir_.get(), staged, 0);
  const os::UniqueFd fd(::openat(work_dir_.get(), staged,
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400));
  if (!fd) return Error::from_errno("base file");
  return os::write_all(fd.get(), content);
}

Result<bool> BaseStore::put(const Sha256Digest& digest, std::string_view content) {
  if (!base_dir_ || content.size() > kMaxContent) return false;
  const std::string hex = to_hex(digest);
  const std::string folder = hex.substr(0, 2);
  const std::string name = folder + "/" + hex.substr(2);
  if (::faccessat(base_dir_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return true;
  // The file, and the folder that may be new or grow.
  const std::uint64_t cost = (content.size() + kBlock - 1) / kBlock * kBlock + kBlock;
  if (!ledger_->reserve(cost, 0)) return false;
  const std::int64_t before = bytes_of(base_dir_.get(), folder.c_str());
  const auto built = [&]() -> Status {
    if (::mkdirat(base_dir_.get(), folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error::from_errno("base directory");
    }
    TRY(write_whole(kStaged, content));
    if (::renameat(work_dir_.get(), kStaged, base_dir_.get(), name.c_str()) != 0) {
      return Error::from_errno("base file");
    }
    return {};
  }();
  const std::int64_t folder_growth = bytes_of(base_dir_.get(), folder.c_str()) - before;
  ledger_->settle(cost, folder_growth + bytes_of(base_dir_.get(), name.c_str()));
  if (built.ok()) return true;
  (void)::unlinkat(work_dir_.get(), kStaged, 0);
  if (is_full(built.error().error_number())) return false;
  return built.error();
}

}  // namespace cofferdam::overlay
