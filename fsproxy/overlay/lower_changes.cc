// What lower's owner does while the workload runs: which directories are watched, and what is out
// of date after a change.
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {

// Before anything is read of the directory, so that no change falls between.
void Overlay::watch_lower(Node& dir) {
  if (options_.watch == nullptr || !dir.merged || dir.watched || dir.watch_refused) return;
  const auto lower = dirs_->lower(dir);
  if (!lower.ok()) return;
  dir.watched = options_.watch->add(dir.id, (*lower)->get());
  dir.watch_refused = !dir.watched;
}

std::vector<Stale> Overlay::lower_changed(NodeId id, const std::string& name, bool entries) {
  Node* dir = nodes_.find(id);
  if (dir == nullptr) {
    options_.watch->remove(id);
    return {};
  }
  std::vector<Stale> out;
  if (name.empty()) {
    out.push_back({id, "", id, true});
    if (!entries || !dir->children) return out;
    // It is gone, or no longer watched: what was said of its entries holds no more.
    dir->watched = false;
    for (const auto& [child_name, child] : *dir->children) {
      if (!child->own() || child->merged) out.push_back({id, child_name, child->id, false});
    }
    return out;
  }
  Node* child = nodes_.child(*dir, name);
  // The workload's own copy covers whatever lies below it.
  const bool covered = child != nullptr && child->own() && !child->merged;
  if (covered && !entries) return {};
  Stale stale;
  stale.dir = id;
  stale.listing = entries;
  if (!covered) {
    if (entries) stale.name = name;
    if (child != nullptr) {
      stale.child = child->id;
      // Tells of a change under an open file.
      if (!child->files.empty()) (void)stat_node(*child).ok();
    }
  }
  out.push_back(std::move(stale));
  return out;
}

std::vector<Stale> Overlay::everything_changed() {
  std::vector<Stale> out;
  nodes_.for_each([&](const Node& node) {
    if (!node.linked() || (node.own() && !node.merged)) return;
    out.push_back({node.id, "", node.id, node.is_dir()});
    for (const NodeName& at : node.names) out.push_back({at.parent->id, at.name, 0, false});
  });
  return out;
}

}  // namespace cofferdam::overlay
