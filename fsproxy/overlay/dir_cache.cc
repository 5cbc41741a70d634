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

DirRef DirCache::cached(OneTree& tree, Key key) {
  const auto found = tree.entries.find(key);
  if (found == tree.entries.end()) return nullptr;
  tree.order.splice(tree.order.begin(), tree.order, found->second.used);
  return found->second.dir;
}

void DirCache::keep(OneTree& tree, Key key, DirRef dir) {
  while (tree.entries.size() >= capacity_) {
    tree.entries.erase(tree.order.back());
    tree.order.pop_back();
  }
  tree.order.push_front(key);
  tree.entries[key] = {std::move(dir), tree.order.begin()};
}

Result<DirRef> DirCache::get(OneTree& tree, const DirRef& root, Node& dir, std::uint32_t layer) {
  std::vector<Node*> missing;
  DirRef at;
  for (Node* node = &dir; !at;) {
    if (node == &nodes_.root()) {
      at = root;
      break;
    }
    if (node->names.empty()) return Error::from_errno("directory", ENOENT);
    at = cached(tree, {node->id, layer});
    if (at) break;
    missing.push_back(node);
    node = node->names.front().parent;
  }
  if (!at->valid()) return Error::from_errno("directory", ENOENT);
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    Node& node = **it;
    auto next = os::open_beneath(at->get(), node.names.front().name, O_PATH | O_DIRECTORY);
    if (!next.ok()) return next.error();
    if (&tree == &trees_[1]) {
      TRY_ASSIGN(const LowerStat now, stat_lower(next->get(), ""));
      if (now.identity != node.origin) return Error::from_errno("directory", ESTALE);
    }
    at = std::make_shared<const os::UniqueFd>(std::move(next).value());
    keep(tree, {node.id, layer}, at);
  }
  return at;
}

Result<DirRef> DirCache::frozen(Node& dir, std::uint32_t layer) {
  const auto root = frozen_roots_.find(layer);
  if (root == frozen_roots_.end()) return Error::from_errno("frozen layer", EIO);
  return get(frozen_, root->second, dir, layer);
}

void DirCache::add_frozen(std::uint32_t layer, os::UniqueFd root) {
  frozen_roots_[layer] = std::make_shared<const os::UniqueFd>(std::move(root));
}

void DirCache::freeze(std::uint32_t layer, os::UniqueFd root) {
  OneTree& upper = trees_[0];
  frozen_roots_[layer] = std::move(upper.root);
  upper.root = std::make_shared<const os::UniqueFd>(std::move(root));
  upper.entries.clear();
  upper.order.clear();
}

void DirCache::drop(OneTree& tree, Key key) {
  const auto found = tree.entries.find(key);
  if (found == tree.entries.end()) return;
  tree.order.erase(found->second.used);
  tree.entries.erase(found);
}

void DirCache::drop(Tree which, NodeId id) {
  drop(trees_[static_cast<std::size_t>(which)], {id, 0});
}

void DirCache::drop(NodeId id) {
  drop(Tree::kUpper, id);
  drop(Tree::kLower, id);
  for (const auto& [layer, root] : frozen_roots_) drop(frozen_, {id, layer});
}

}  // namespace cofferdam::overlay
