// FrozenNames: for directories that lie in several frozen layers, which layer has which name.
//
// Frozen layers never change, so that what was read of them once holds until the next freeze: a
// lookup costs the same with two layers and with sixty-four. The least recently used directories go
// when there are too many names. Used by the one thread of a mount.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "fsproxy/overlay/node.h"

namespace cofferdam::overlay {

struct FrozenName {
  std::uint32_t layer = 0;  // the newest that has the name
  mode_t type = 0;          // S_IFMT bits; S_IFCHR: a whiteout
  std::uint64_t inode = 0;
  // Where it is a directory: older layers that have one there, too, the newest first …
  std::vector<std::uint32_t> more;
  bool cut = false;  // … and whether something else lies below these
};
using FrozenDirectory = std::unordered_map<std::string, FrozenName, NameHash, std::equal_to<>>;

class FrozenNames final {
 public:
  static constexpr std::size_t kMaxNames = 1U << 20U;

  // Null where the directory has not been read. Holds until the next keep() or drop().
  const FrozenDirectory* find(NodeId id);
  const FrozenDirectory& keep(NodeId id, FrozenDirectory names);
  void drop(NodeId id);
  void clear();

 private:
  struct Entry {
    FrozenDirectory names;
    std::list<NodeId>::iterator used;
  };

  std::unordered_map<NodeId, Entry> entries_;
  std::list<NodeId> order_;  // most recently used first
  std::size_t names_ = 0;
};

}  // namespace cofferdam::overlay
