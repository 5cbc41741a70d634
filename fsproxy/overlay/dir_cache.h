// DirCache: descriptors of directories of both trees, least recently used out first.
//
// Every system call on an object goes through the descriptor of its directory and one name. A
// directory is found by walking from the nearest cached ancestor, one name at a time.
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
  Result<DirRef> upper(Node& dir) { return get(Tree::kUpper, dir); }
  // The directory in lower; `merged` nodes only. ESTALE when something else took its place.
  Result<DirRef> lower(Node& dir) { return get(Tree::kLower, dir); }
  const DirRef& root(Tree tree) const { return trees_[static_cast<std::size_t>(tree)].root; }

  void drop(Tree tree, NodeId id);
  void drop(NodeId id);

 private:
  struct Entry {
    DirRef dir;
    std::list<NodeId>::iterator used;
  };
  struct OneTree {
    DirRef root;
    std::unordered_map<NodeId, Entry> entries;
    std::list<NodeId> order;  // most recently used first
  };

  Result<DirRef> get(Tree tree, Node& dir);
  DirRef cached(OneTree& tree, NodeId id);
  void keep(OneTree& tree, NodeId id, DirRef dir);

  NodeTable& nodes_;
  OneTree trees_[2];
  std::size_t capacity_;
};

}  // namespace cofferdam::overlay
