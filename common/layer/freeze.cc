#include "common/layer/freeze.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/layer/layer_stack.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::layer {
namespace {

namespace fs = std::filesystem;

// A file in the directory of a layer that is being frozen, whose name ends with the inode number of
// the new upper: so it is known afterwards which of the two is which.
constexpr std::string_view kMark = "new.";

Result<os::UniqueFd> open_directory(const fs::path& path) {
  return os::open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Status sync_directory(const fs::path& path) {
  TRY_ASSIGN(const os::UniqueFd dir, open_directory(path));
  if (::fsync(dir.get()) != 0) return Error::from_errno("sync " + path.string());
  return {};
}

// Owner, mode and times of the root.
Status dress_like(int like, int fd) {
  struct stat st {};
  struct stat own {};
  if (::fstat(like, &st) != 0 || ::fstat(fd, &own) != 0) return Error::from_errno("freeze: stat");
  if ((st.st_uid != own.st_uid || st.st_gid != own.st_gid) &&
      ::fchown(fd, st.st_uid, st.st_gid) != 0) {
    return Error::from_errno("freeze: chown");
  }
  const struct timespec times[2] = {st.st_atim, st.st_mtim};
  if (::fchmod(fd, st.st_mode & 07777U) != 0 || ::futimens(fd, times) != 0) {
    return Error::from_errno("freeze: attributes");
  }
  return {};
}

Result<bool> has_mark(const fs::path& fresh) {
  bool found = false;
  const auto dir = open_directory(fresh);
  if (!dir.ok()) return dir.error();
  TRY(os::for_each_name(dir->get(), [&](std::string_view name) -> Status {
    found = found || name.starts_with(kMark);
    return {};
  }));
  return found;
}

Status exchange_uppers(const fs::path& layer, std::uint32_t number) {
  TRY_ASSIGN(const os::UniqueFd above, open_directory(layer));
  TRY_ASSIGN(const os::UniqueFd fresh, open_directory(layer / "layers" / std::to_string(number)));
  TRY(os::rename_exchange(above.get(), "upper", fresh.get(), "upper"));
  if (::fsync(fresh.get()) != 0 || ::fsync(above.get()) != 0) {
    return Error::from_errno("freeze: sync");
  }
  return {};
}

}  // namespace

Result<Freeze> Freeze::prepare(const fs::path& layer, MetaStore& meta) {
  Freeze out(layer, meta);
  TRY_ASSIGN(const std::vector<std::string> rows, meta.whiteouts());
  if (!rows.empty()) {
    return Error(
        "the file system of the sandbox's directory holds no whiteouts, and without them there are "
        "no checkpoints: use a state directory on ext4, xfs or btrfs",
        EOPNOTSUPP);
  }
  TRY_ASSIGN(const StackHead head, CheckpointTable(meta).head());
  out.number_ = head.next;
  out.parent_ = head.parent;
  const fs::path fresh = layer / "layers" / std::to_string(out.number_);
  TRY_ASSIGN(const os::UniqueFd upper, open_directory(layer / "upper"));
  const auto make = [&]() -> Status {
    TRY(os::make_directories(fresh / "upper", 0700));
    TRY_ASSIGN(const os::UniqueFd next, open_directory(fresh / "upper"));
    TRY(dress_like(upper.get(), next.get()));
    struct stat st {};
    struct stat old {};
    if (::fstat(next.get(), &st) != 0 || ::fstat(upper.get(), &old) != 0) {
      return Error::from_errno("freeze: stat");
    }
    out.new_inode_ = st.st_ino;
    TRY(os::open_file(fresh / (std::string(kMark) + std::to_string(st.st_ino)),
                      O_WRONLY | O_CREAT | O_EXCL));
    // A root without a lower one shows the number of the first upper for ever.
    std::uint64_t shown = born_number(old.st_ino);
    TRY(meta.for_each_shown_inode([&](std::uint64_t inode, std::uint64_t number) {
      if (inode == old.st_ino) shown = number;
    }));
    TRY(meta.set_shown_inode(st.st_ino, shown));
    TRY(meta.copy_owner(old.st_ino, st.st_ino));
    TRY(os::sync_file_system(upper.get()));
    return meta.sync_always();
  };
  if (Status made = make(); !made.ok()) {
    (void)out.take_back().ok();
    return made.error();
  }
  return out;
}

Status Freeze::exchange() {
  return exchange_uppers(layer_, number_);
}

Status Freeze::commit(Checkpoint& checkpoint) {
  checkpoint.layer = number_;
  checkpoint.parent = parent_;
  TRY(CheckpointTable(*meta_).add(*meta_, checkpoint));
  const fs::path mark = layer_ / "layers" / std::to_string(number_) /
                        (std::string(kMark) + std::to_string(new_inode_));
  // Means nothing any more.
  (void)::unlink(mark.c_str());
  return {};
}

Status Freeze::commit_rollback(const std::string& id) {
  TRY_ASSIGN(std::vector<Checkpoint> chain, CheckpointTable(*meta_).chain());
  const auto target =
      std::find_if(chain.begin(), chain.end(), [&](const Checkpoint& one) { return one.id == id; });
  if (target == chain.end()) return Error::from_errno("checkpoint " + id, ENOENT);
  chain.erase(chain.begin(), target);
  std::reverse(chain.begin(), chain.end());
  {
    TRY_ASSIGN(const fs::path frozen, frozen_path(layer_, chain.back().layer));
    TRY_ASSIGN(const os::UniqueFd like, open_directory(frozen));
    TRY_ASSIGN(const os::UniqueFd upper, open_directory(layer_ / "upper"));
    TRY(dress_like(like.get(), upper.get()));
    struct stat old {};
    struct stat own {};
    if (::fstat(like.get(), &old) != 0 || ::fstat(upper.get(), &own) != 0) {
      return Error::from_errno("freeze: stat");
    }
    TRY(meta_->copy_owner(old.st_ino, own.st_ino));
    TRY(os::sync_file_system(upper.get()));
  }
  return CheckpointTable(*meta_).replace(*meta_, chain, number_);
}

Status Freeze::take_back() {
  if (new_inode_ != 0) {
    TRY(meta_->forget_shown_inode(new_inode_));
    TRY(meta_->forget_owner(new_inode_));
  }
  return take_back_freeze(layer_, number_);
}

Result<bool> is_exchanged(const fs::path& fresh, int upper_fd) {
  const auto dir = open_directory(fresh);
  if (!dir.ok()) {
    if (dir.error().error_number() == ENOENT) return false;
    return dir.error();
  }
  struct stat st {};
  if (::fstat(upper_fd, &st) != 0) return Error::from_errno("freeze: stat");
  const std::string mark = std::string(kMark) + std::to_string(st.st_ino);
  return os::stat_in(dir->get(), mark).ok();
}

Status take_back_freeze(const fs::path& layer, std::uint32_t number) {
  const fs::path fresh = layer / "layers" / std::to_string(number);
  {
    TRY_ASSIGN(const os::UniqueFd upper, open_directory(layer / "upper"));
    TRY_ASSIGN(const bool exchanged, is_exchanged(fresh, upper.get()));
    if (exchanged) TRY(exchange_uppers(layer, number));
  }
  // What is left is the new upper, which nobody has written into.
  const bool empty = ::rmdir((fresh / "upper").c_str()) == 0 || errno == ENOENT;
  // Without a mark no freeze got so far that anything of upper could lie here: what does was folded
  // together of other layers (squash.h), which are all there.
  TRY_ASSIGN(const bool marked, has_mark(fresh));
  if (!empty && marked)
    return Error("the freeze of " + fresh.string() + " cannot be taken back", EIO);
  TRY(os::remove_tree(fresh));
  return sync_directory(layer);
}

}  // namespace cofferdam::layer
