#include "fsproxy/overlay/node_table.h"

#include <algorithm>

#include "common/base/check.h"

namespace cofferdam::overlay {

NodeTable::NodeTable() {
  auto root = std::make_unique<Node>();
  root->id = next_++;
  root->type = S_IFDIR;
  root->lookups = 1;
  root_ = root.get();
  nodes_.emplace(root->id, std::move(root));
}

Node* NodeTable::find(NodeId id) {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second.get();
}

Node* NodeTable::child(const Node& parent, std::string_view name) const {
  if (!parent.children) return nullptr;
  const auto found = parent.children->find(name);
  return found == parent.children->end() ? nullptr : found->second;
}

Node* NodeTable::by_upper_inode(std::uint64_t inode) const {
  const auto found = upper_.find(inode);
  return found == upper_.end() ? nullptr : found->second;
}

Node& NodeTable::create(Node& parent, std::string_view name, mode_t type) {
  Node& node = create_unnamed(type);
  add_name(node, parent, name);
  return node;
}

Node& NodeTable::create_unnamed(mode_t type) {
  auto owned = std::make_unique<Node>();
  Node& node = *owned;
  node.id = next_++;
  node.type = type & S_IFMT;
  nodes_.emplace(node.id, std::move(owned));
  return node;
}

void NodeTable::add_name(Node& node, Node& parent, std::string_view name) {
  CHECK(parent.is_dir());
  if (!parent.children) parent.children = std::make_unique<Children>();
  const bool added = parent.children->emplace(std::string(name), &node).second;
  CHECK(added);
  node.names.push_back({&parent, std::string(name)});
}

void NodeTable::remove_name(Node& node, Node& parent, std::string_view name) {
  const auto found = std::find_if(node.names.begin(), node.names.end(), [&](const NodeName& n) {
    return n.parent == &parent && n.name == name;
  });
  CHECK(found != node.names.end());
  // `name` may be the string that goes.
  const std::string key(name);
  node.names.erase(found);
  parent.children->erase(key);
  if (parent.children->empty()) parent.children.reset();
}

Node* NodeTable::by_origin(const LowerIdentity& origin) const {
  const auto found = shared_.find(origin.inode);
  return found == shared_.end() || found->second->origin != origin ? nullptr : found->second;
}

void NodeTable::share(Node& node) {
  node.shared = true;
  shared_[node.origin.inode] = &node;
}

void NodeTable::unshare(const Node& node) {
  const auto found = shared_.find(node.origin.inode);
  if (node.shared && found != shared_.end() && found->second == &node) shared_.erase(found);
}

void NodeTable::set_upper(Node& node, std::uint64_t upper_inode) {
  unshare(node);
  forget_upper(node);
  node.upper = true;
  node.frozen = 0;
  node.upper_inode = upper_inode;
  upper_[upper_inode] = &node;
}

void NodeTable::set_frozen(Node& node, std::uint32_t layer, std::uint64_t inode) {
  forget_upper(node);
  node.upper = false;
  node.frozen = layer;
  node.upper_inode = inode;
  upper_[inode] = &node;
}

void NodeTable::forget_upper(Node& node) {
  const auto found = upper_.find(node.upper_inode);
  if (node.own() && found != upper_.end() && found->second == &node) upper_.erase(found);
}

void NodeTable::release(Node* node) {
  while (node != nullptr && node != root_ && node->lookups == 0 && node->pins == 0 &&
         node->files.empty() && !node->children) {
    Node* parent = node->names.empty() ? nullptr : node->names.front().parent;
    while (!node->names.empty()) {
      const NodeName last = node->names.back();
      remove_name(*node, *last.parent, last.name);
      // Further names only pin their own parents; those are released on their own.
      if (last.parent != parent) release(last.parent);
    }
    forget_upper(*node);
    unshare(*node);
    if (on_free_) on_free_(*node);
    nodes_.erase(node->id);
    node = parent;
  }
}

std::string NodeTable::path(const Node& node) const {
  std::vector<std::string_view> parts;
  std::size_t length = 0;
  for (const Node* at = &node; at != root_ && !at->names.empty(); at = at->names.front().parent) {
    parts.push_back(at->names.front().name);
    length += parts.back().size() + 1;
  }
  std::string out;
  out.reserve(length);
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
    if (!out.empty()) out += '/';
    out += *it;
  }
  return out;
}

std::string NodeTable::child_path(std::string parent_path, std::string_view name) {
  if (!parent_path.empty()) parent_path += '/';
  parent_path += name;
  return parent_path;
}

std::string NodeTable::child_path(const Node& parent, std::string_view name) const {
  return child_path(path(parent), name);
}

std::size_t NodeTable::depth(const Node& node) const {
  std::size_t depth = 0;
  for (const Node* at = &node; at != root_ && !at->names.empty(); at = at->names.front().parent) {
    ++depth;
  }
  return depth;
}

bool NodeTable::is_below(const Node& node, const Node& ancestor) const {
  for (const Node* at = &node;; at = at->names.front().parent) {
    if (at == &ancestor) return true;
    if (at == root_ || at->names.empty()) return false;
  }
}

}  // namespace cofferdam::overlay
