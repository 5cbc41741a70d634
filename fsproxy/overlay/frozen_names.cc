#include "fsproxy/overlay/frozen_names.h"

namespace cofferdam::overlay {

const FrozenDirectory* FrozenNames::find(NodeId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return nullptr;
  order_.splice(order_.begin(), order_, found->second.used);
  return &found->second.names;
}

const FrozenDirectory& FrozenNames::keep(NodeId id, FrozenDirectory names) {
  drop(id);
  while (!order_.empty() && names_ + names.size() > kMaxNames) drop(order_.back());
  names_ += names.size();
  order_.push_front(id);
  return entries_.emplace(id, Entry{std::move(names), order_.begin()}).first->second.names;
}

void FrozenNames::drop(NodeId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  names_ -= found->second.names.size();
  order_.erase(found->second.used);
  entries_.erase(found);
}

void FrozenNames::clear() {
  entries_.clear();
  order_.clear();
  names_ = 0;
}

}  // namespace cofferdam::overlay
