// Owners: whom an object belongs to, as the workload sees it. On disk everything in the layers
// belongs to the sandbox's owner; what the workload gave away, or made as somebody else, is
// remembered beside it (docs/layer-format.md, table `owner`). Ids are those of the mount's user
// namespace.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "common/layer/meta_store.h"

namespace cofferdam::overlay {

struct Owner {
  uid_t uid = 0;
  gid_t gid = 0;
  bool operator==(const Owner&) const = default;
};

// How ids on disk look inside (docs/processes.md). With empty lists they look as they are.
struct OwnerPolicy {
  std::vector<uid_t> uids = {};
  std::vector<gid_t> gids = {};
  uid_t shown_uid = 0;
  gid_t shown_gid = 0;
  uid_t other_uid = 65534;
  gid_t other_gid = 65534;

  uid_t shown(uid_t uid) const;
  gid_t shown_group(gid_t gid) const;
};

class Owners final {
 public:
  explicit Owners(OwnerPolicy policy) : policy_(std::move(policy)) {}

  // Loads what the layer remembers. `meta` may be null (no layer) and must outlive this.
  Status load(layer::MetaStore* meta);

  // What an object of nobody's changing shows, by its stat on disk.
  Owner shown(const struct stat& disk) const;
  // The same of an object of the layers, by its inode there.
  Owner of(std::uint64_t inode, const struct stat& disk) const;
  // Before the object gets its name in upper, or of one that has it. `disk`: its stat there.
  Status set(std::uint64_t inode, const struct stat& disk, const Owner& owner);
  // The object is gone, or another has its number now.
  Status forget(std::uint64_t inode);

 private:
  OwnerPolicy policy_;
  layer::MetaStore* meta_ = nullptr;
  std::unordered_map<std::uint64_t, Owner> owners_;
};

}  // namespace cofferdam::overlay
