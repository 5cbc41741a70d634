// LinkIndex: lower files with several names stay one file when they are copied up.
//
// The copy has one more name, in `index/` of the layer, as long as lower names are left that nobody
// asked for since: whoever asks for one gets it linked to the copy. A group also counts the lower
// names that are gone, so that st_nlink is the truth (docs/layer-format.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"
#include "fsproxy/overlay/node.h"

namespace cofferdam::overlay {

struct LinkGroup {
  LowerIdentity origin;
  std::uint64_t names = 0;        // that lower has
  std::uint64_t upper_inode = 0;  // of the copy; 0: not copied up
  std::set<std::string> covered;  // paths of lower names that lower shows no more
  bool copied() const { return upper_inode != 0; }
};

class LinkIndex final {
 public:
  // Whether upper (or a row) covers the lower name at this path.
  using Covers = std::function<Result<bool>(const std::string& path)>;

  // Loads the groups of a layer, and puts right what a kill left half done. `meta` must outlive
  // this.
  Status load(os::UniqueFd index_dir, layer::MetaStore& meta, const Covers& covers);

  LinkGroup* find(const LowerIdentity& origin);
  LinkGroup* of_copy(std::uint64_t upper_inode);
  // The names that the file of this group has in the merged view, given those in upper.
  static std::uint64_t shown_links(const LinkGroup& group, std::uint64_t links_in_upper);

  // The staged copy (work_dir, staged) becomes that of the file with this many names in lower.
  Status add_copy(const LowerIdentity& origin, std::uint64_t names, std::uint64_t upper_inode,
                  int work_dir, const std::string& staged);
  // The copy came to nothing.
  void take_back(const LowerIdentity& origin);
  // (dir, name) becomes a name of the copy.
  Status link_copy(const LinkGroup& group, int dir_fd, const std::string& name);

  // Before the lower name at `path` is copied up, replaced or deleted.
  Status cover(const LowerIdentity& origin, std::uint64_t names, const std::string& path);
  // It came to nothing; lower shows the name as before.
  void uncover(const LowerIdentity& origin, const std::string& path);
  // After that: a group without lower names is one no more.
  Status settle(const LowerIdentity& origin);

  int directory() const { return dir_.get(); }

 private:
  struct Hash {
    std::size_t operator()(const LowerIdentity& id) const {
      return std::hash<std::uint64_t>()(id.inode ^ (static_cast<std::uint64_t>(id.birth_ns) << 1U));
    }
  };
  // Device numbers may be others after a restart; lower is one file system.
  static LowerIdentity key(const LowerIdentity& origin) {
    return {0, origin.inode, origin.birth_ns};
  }
  static std::string file_name(const LowerIdentity& key);
  Status drop(const LowerIdentity& key);
  Status remove_strays();

  os::UniqueFd dir_;
  layer::MetaStore* meta_ = nullptr;
  std::unordered_map<LowerIdentity, LinkGroup, Hash> groups_;
  std::unordered_map<std::uint64_t, LowerIdentity> copies_;  // upper inode -> key
};

}  // namespace cofferdam::overlay
