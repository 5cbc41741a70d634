#include "fsproxy/overlay/inode_numbers.h"

#include <algorithm>

namespace cofferdam::overlay {

Status InodeNumbers::load(layer::MetaStore* meta) {
  meta_ = meta;
  if (meta == nullptr) return {};
  return meta->for_each_shown_inode(
      [&](std::uint64_t upper, std::uint64_t shown) { note(upper, shown); });
}

void InodeNumbers::note(std::uint64_t upper_inode, std::uint64_t shown) {
  shown_[upper_inode] = shown;
  if (shown < kFresh) return;
  taken_.insert(shown);
  if (shown < kUpperBorn) next_fresh_ = std::max(next_fresh_, shown + 1);
}

std::uint64_t InodeNumbers::shown(std::uint64_t upper_inode) const {
  const auto found = shown_.find(upper_inode);
  return found != shown_.end() ? found->second : layer::born_number(upper_inode);
}

Status InodeNumbers::remember(std::uint64_t upper_inode, std::uint64_t shown) {
  note(upper_inode, shown);
  if (meta_ == nullptr) return {};
  return meta_->set_shown_inode(upper_inode, shown);
}

Status InodeNumbers::born(std::uint64_t upper_inode) {
  TRY(forget(upper_inode));
  if (taken_.empty() || !taken_.contains(layer::born_number(upper_inode))) return {};
  return remember(upper_inode, next_fresh_);
}

Status InodeNumbers::forget(std::uint64_t upper_inode) {
  // Its number stays taken: a frozen object may show it, too.
  if (shown_.erase(upper_inode) == 0 || meta_ == nullptr) return {};
  return meta_->forget_shown_inode(upper_inode);
}

}  // namespace cofferdam::overlay
