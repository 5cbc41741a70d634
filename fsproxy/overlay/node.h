// Node: one object of the merged view, by our own number, which survives copy-up and rename.
//
// Owned by NodeTable; used by the one thread of its mount.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/layer/meta_store.h"

namespace cofferdam::overlay {

using NodeId = std::uint64_t;
inline constexpr NodeId kRootId = 1;

struct Node;
struct OpenFile;

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
using Children = std::unordered_map<std::string, Node*, NameHash, std::equal_to<>>;

// One directory entry that leads to a node.
struct NodeName {
  Node* parent = nullptr;
  std::string name;
};

// What tells one lower object from another that later took its inode number.
struct LowerIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t birth_ns = 0;  // 0 where the file system has none
  bool operator==(const LowerIdentity&) const = default;
};

struct Node {
  NodeId id = 0;
  mode_t type = 0;           // S_IFMT bits
  bool upper = false;        // the object lies in upper
  std::uint32_t frozen = 0;  // the frozen layer that the object lies in; 0: in none
  bool in_lower = false;     // it came from lower: `origin` is valid
  bool merged = false;       // a directory whose entries include those of the lower one
  bool shared = false;       // a lower file: all its names in lower lead to this node
  std::uint64_t shown_inode = 0;
  std::uint64_t upper_inode = 0;     // where own(): on the file system of the layers
  std::vector<std::uint32_t> parts;  // a directory's frozen layers that show, the newest first
  LowerIdentity origin;
  std::vector<NodeName> names;  // empty: unlinked (or the root)
  std::unique_ptr<Children> children;
  std::vector<OpenFile*> files;  // open on this node
  std::uint64_t lookups = 0;     // references that the other side holds
  std::uint32_t pins = 0;        // references of operations and directory handles
  bool read_recorded = false;
  bool nameless = false;       // made without a name, and has none yet
  bool superseded = false;     // its names lead to another node of the same object
  bool sent_on = false;        // who opened it last was told so
  bool watched = false;        // changes of the lower directory are told
  bool watch_refused = false;  // there is no watch to be had for it
  std::int64_t blocks =
      0;  // of an upper file with open handles: what the ledger holds, 512 bytes each
  std::optional<layer::Version> cached;  // the lower version that pages may be cached of
  struct stat last {};                   // as last told; answers for what is unlinked

  bool is_dir() const { return S_ISDIR(type); }
  bool is_regular() const { return S_ISREG(type); }
  // The workload's own object, not one of lower.
  bool own() const { return upper || frozen != 0; }
  // A directory whose entries include those of one below upper.
  bool stacked() const { return merged || !parts.empty(); }
  bool linked() const { return id == kRootId || !names.empty(); }
};

}  // namespace cofferdam::overlay
