// NodeTable: every node that is referenced, by number and by (parent, name).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "fsproxy/overlay/node.h"

namespace cofferdam::overlay {

class NodeTable final {
 public:
  NodeTable();

  Node& root() { return *root_; }
  Node* find(NodeId id);
  Node* child(const Node& parent, std::string_view name) const;
  // The object of upper or of a frozen layer with this inode number.
  Node* by_upper_inode(std::uint64_t inode) const;
  // The node of a lower file that is not copied up.
  Node* by_origin(const LowerIdentity& origin) const;

  // A new node at (parent, name), which must be free.
  Node& create(Node& parent, std::string_view name, mode_t type);
  // One that no name leads to.
  Node& create_unnamed(mode_t type);
  void add_name(Node& node, Node& parent, std::string_view name);
  // The entry (parent, name) no longer leads to the node.
  void remove_name(Node& node, Node& parent, std::string_view name);
  void set_upper(Node& node, std::uint64_t upper_inode);
  // The object lies in this frozen layer; found by its inode like one of upper.
  void set_frozen(Node& node, std::uint32_t layer, std::uint64_t inode);
  void forget_upper(Node& node);
  // Found by its origin from now on, until it lies in upper.
  void share(Node& node);

  // Frees the node when nothing refers to it, and then its parents likewise.
  void release(Node* node);

  // Relative to the root, no leading slash; "" is the root. The first name of several. Empty too
  // for unlinked nodes.
  std::string path(const Node& node) const;
  std::string child_path(const Node& parent, std::string_view name) const;
  static std::string child_path(std::string parent_path, std::string_view name);
  // Names between the node and the root.
  std::size_t depth(const Node& node) const;
  // Whether `node` is `ancestor` or lies below it.
  bool is_below(const Node& node, const Node& ancestor) const;

  bool contains(NodeId id) const { return nodes_.contains(id); }
  std::size_t size() const { return nodes_.size(); }
  // Larger than that of any node so far.
  NodeId next_id() const { return next_; }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [id, node] : nodes_) visit(*node);
  }
  // Told of each node before it is freed.
  void on_free(std::function<void(Node&)> call) { on_free_ = std::move(call); }

 private:
  void unshare(const Node& node);

  std::unordered_map<NodeId, std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::uint64_t, Node*> upper_;
  std::unordered_map<std::uint64_t, Node*> shared_;  // by origin's inode
  std::function<void(Node&)> on_free_;
  Node* root_;
  NodeId next_ = kRootId;
};

// Keeps a node while an operation works with it.
class Pin final {
 public:
  Pin(NodeTable& table, Node& node) : table_(&table), node_(&node) { ++node.pins; }
  Pin(Pin&& other) noexcept : table_(other.table_), node_(std::exchange(other.node_, nullptr)) {}
  Pin& operator=(Pin&&) = delete;
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() {
    if (node_ == nullptr) return;
    --node_->pins;
    table_->release(node_);
  }
  Node& operator*() const { return *node_; }
  Node* operator->() const { return node_; }

 private:
  NodeTable* table_;
  Node* node_;
};

}  // namespace cofferdam::overlay
