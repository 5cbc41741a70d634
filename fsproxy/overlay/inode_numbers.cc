#include "fsproxy/overlay/inode_numbers.h"

namespace cofferdam::overlay {

Status InodeNumbers::load(layer::MetaStore* meta) {
  meta_ = meta;
  if (meta == nullptr) return {};
  return meta->for_each_shown_inode(
      [&](std::uint64_t upper, std::uint64_t shown) { shown_[upper] = shown; });
}

std::uint64_t InodeNumbers::shown(std::uint64_t upper_inode) const {
  const auto found = shown_.find(upper_inode);
  if (found != shown_.end()) return found->second;
  return upper_inode < kUpperBorn ? upper_inode + kUpperBorn : upper_inode ^ (1ULL << 62U);
}

Status InodeNumbers::remember(std::uint64_t upper_inode, std::uint64_t shown) {
  shown_[upper_inode] = shown;
  if (meta_ == nullptr) return {};
  return meta_->set_shown_inode(upper_inode, shown);
}

Status InodeNumbers::forget(std::uint64_t upper_inode) {
  if (shown_.erase(upper_inode) == 0 || meta_ == nullptr) return {};
  return meta_->forget_shown_inode(upper_inode);
}

}  // namespace cofferdam::overlay
