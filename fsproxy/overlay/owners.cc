#include "fsproxy/overlay/owners.h"

#include <algorithm>

namespace cofferdam::overlay {
namespace {

template <typename Id>
Id look(const std::vector<Id>& own, Id id, Id shown, Id other) {
  if (own.empty()) return id;
  return std::find(own.begin(), own.end(), id) != own.end() ? shown : other;
}

}  // namespace

uid_t OwnerPolicy::shown(uid_t uid) const {
  return look(uids, uid, shown_uid, other_uid);
}

gid_t OwnerPolicy::shown_group(gid_t gid) const {
  return look(gids, gid, shown_gid, other_gid);
}

Status Owners::load(layer::MetaStore* meta) {
  meta_ = meta;
  if (meta == nullptr) return {};
  return meta->for_each_owner([&](std::uint64_t inode, std::uint32_t uid, std::uint32_t gid) {
    owners_[inode] = {uid, gid};
  });
}

Owner Owners::shown(const struct stat& disk) const {
  return {policy_.shown(disk.st_uid), policy_.shown_group(disk.st_gid)};
}

Owner Owners::of(std::uint64_t inode, const struct stat& disk) const {
  if (!owners_.empty()) {
    if (const auto found = owners_.find(inode); found != owners_.end()) return found->second;
  }
  return shown(disk);
}

Status Owners::set(std::uint64_t inode, const struct stat& disk, const Owner& owner) {
  if (owner == shown(disk)) return forget(inode);
  if (const auto found = owners_.find(inode); found != owners_.end() && found->second == owner) {
    return {};
  }
  if (meta_ != nullptr) TRY(meta_->set_owner(inode, owner.uid, owner.gid));
  owners_[inode] = owner;
  return {};
}

Status Owners::forget(std::uint64_t inode) {
  if (owners_.empty() || owners_.erase(inode) == 0 || meta_ == nullptr) return {};
  return meta_->forget_owner(inode);
}

}  // namespace cofferdam::overlay
