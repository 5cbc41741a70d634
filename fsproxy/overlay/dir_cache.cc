#include "fsproxy/overlay/dir_cache.h"

#include <fcntl.h>

#include <vector>

#include "common/os/beneath.h"
#include "fsproxy/overlay/lower_tree.h"

namespace cofferdam::overlay {

DirCache::DirCache(NodeTable& nodes, os::UniqueFd upper_root, os::UniqueFd lower_root,
                   std::size_t capacity)
    : nodes_(nodes), capacity_(capacity) {
  trees_[0].root = std::make_shared<const os::UniqueFd>(std::move(upper_root));
  trees_[1].root = std::make_shared<const os::UniqueFd>(std::move(lower_root));
}

DirRef DirCache::cached(OneTree& tree, NodeId id) {
  const auto found = tree.entries.find(id);
  if (found == tree.entries.end()) return nullptr;
  tree.order.splice(tree.order.begin(), tree.order, found->second.used);
  return found->second.dir;
}

void DirCache::keep(OneTree& tree, NodeId id, DirRef dir) {
  while (tree.entries.size() >= capacity_) {
    tree.entries.erase(tree.order.back());
    tree.order.pop_back();
  }
  tree.order.push_front(id);
  tree.entries[id] = {std::move(dir), tree.order.begin()};
}

Result<DirRef> DirCache::get(Tree which, Node& dir) {
  OneTree& tree = trees_[static_cast<std::size_t>(which)];
  std::vector<Node*> missing;
  DirRef at;
  for (Node* node = &dir; !at;) {
    if (node == &nodes_.root()) {
      at = tree.root;
      break;
    }
    if (node->names.empty()) return Error::from_errno("directory", ENOENT);
    at = cached(tree, node->id);
    if (at) break;
    missing.push_back(node);
    node = node->names.front().parent;
  }
  if (!at->valid()) return Error::from_errno("directory", ENOENT);
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    Node& node = **it;
    auto next = os::open_beneath(at->get(), node.names.front().name, O_PATH | O_DIRECTORY);
    if (!next.ok()) return next.error();
    if (which == Tree::kLower) {
      TRY_ASSIGN(const LowerStat now, stat_lower(next->get(), ""));
      if (now.identity != node.origin) return Error::from_errno("directory", ESTALE);
    }
    at = std::make_shared<const os::UniqueFd>(std::move(next).value());
    keep(tree, node.id, at);
  }
  return at;
}

void DirCache::drop(Tree which, NodeId id) {
  OneTree& tree = trees_[static_cast<std::size_t>(which)];
  const auto found = tree.entries.find(id);
  if (found == tree.entries.end()) return;
  tree.order.erase(found->second.used);
  tree.entries.erase(found);
}

void DirCache::drop(NodeId id) {
  drop(Tree::kUpper, id);
  drop(Tree::kLower, id);
}

}  // namespace cofferdam::overlay
