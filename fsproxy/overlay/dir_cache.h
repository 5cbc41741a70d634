// DirCache: descriptors of directories of both trees, least recently used out first.
//
// Every system call on an object goes through the descriptor of its directory and one name. A
// directory is found by walking from the nearest cached ancestor, one name at a time. Frozen layers
// share one room of descriptors.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "fsproxy/overlay/node_table.h"

namespace cofferdam::overlay {

// Stays open while held, also when the cache drops it. O_PATH.
using DirRef = std::shared_ptr<const os::UniqueFd>;

class DirCache final {
 public:
  enum class Tree : std::uint8_t { kUpper, kLower };

  // Roots may be invalid (no such tree). `capacity` descriptors per tree.
  DirCache(NodeTable& nodes, os::UniqueFd upper_root, os::UniqueFd lower_root,
           std::size_t capacity);

  // The directory in upper; the node and its parents must lie there. ENOENT when unlinked.
  Result<DirRef> upper(Node& dir) { return get(trees_[0], trees_[0].root, dir, 0); }
  // The directory in lower; `merged` nodes only. ESTALE when something else took its place.
  Result<DirRef> lower(Node& dir) { return get(trees_[1], trees_[1].root, dir, 0); }
  // The directory in a frozen layer; the node has a part there.
  Result<DirRef> frozen(Node& dir, std::uint32_t layer);
  const DirRef& root(Tree tree) const { return trees_[static_cast<std::size_t>(tree)].root; }

  void add_frozen(std::uint32_t layer, os::UniqueFd root);
  // Upper becomes the frozen layer with this number, and `root` is upper.
  void freeze(std::uint32_t layer, os::UniqueFd root);

  void drop(Tree tree, NodeId id);
  void drop(NodeId id);
  void drop_frozen(std::uint32_t layer, NodeId id) { drop(frozen_, {id, layer}); }

 private:
  // A node, and where several trees share one room, the tree.
  struct Key {
    NodeId id = 0;
    std::uint32_t layer = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<NodeId>()(key.id * 4099 + key.layer);
    }
  };
  struct Entry {
    DirRef dir;
    std::list<Key>::iterator used;
  };
  struct OneTree {
    DirRef root;
    std::unordered_map<Key, Entry, KeyHash> entries;
    std::list<Key> order;  // most recently used first
  };

  Result<DirRef> get(OneTree& tree, const DirRef& root, Node& dir, std::uint32_t layer);
  DirRef cached(OneTree& tree, Key key);
  void keep(OneTree& tree, Key key, DirRef dir);
  static void drop(OneTree& tree, Key key);

  NodeTable& nodes_;
  OneTree trees_[2];
  OneTree frozen_;  // of all frozen layers
  std::unordered_map<std::uint32_t, DirRef> frozen_roots_;
  std::size_t capacity_;
};

}  // namespace cofferdam::overlay
