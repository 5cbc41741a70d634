#include "fsproxy/fuse/listings.h"

#include <algorithm>

namespace cofferdam::fsproxy {

Listings::~Listings() {
  for (const One& one : open_) view_->close(one.open);
}

Result<overlay::OpenDir*> Listings::get(overlay::NodeId dir, off_t offset) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [dir](const One& one) { return one.dir == dir; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    if (open_.size() >= kMost) drop(open_.back().dir);
    TRY_ASSIGN(overlay::OpenDir * opened, view_->open_directory(dir));
    open_.push_front({dir, opened});
  }
  overlay::OpenDir* open = open_.front().open;
  if (offset == 0 || !open->listed) {
    if (Status listed = view_->list_again(*open); !listed.ok()) {
      drop(dir);
      return listed.error();
    }
  }
  return open;
}

void Listings::drop(overlay::NodeId dir) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [dir](const One& one) { return one.dir == dir; });
  if (found == open_.end()) return;
  view_->close(found->open);
  open_.erase(found);
}

bool Listings::read_below(overlay::NodeId dir) {
  const auto found = kept_.find(dir);
  if (found == kept_.end() || ++found->second.reads * kEntriesPerRead < found->second.entries) {
    return false;
  }
  kept_.erase(found);
  return true;
}

}  // namespace cofferdam::fsproxy
