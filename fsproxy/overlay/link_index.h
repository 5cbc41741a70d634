// LinkIndex: lower files with several names stay one file when they are copied up.
//
// The copy has one more name, in `index/` of the layer, as long as lower names are left that nobody
// asked for since: whoever asks for one gets it linked to the copy. A group also counts the lower
// names that are gone, so that st_nlink is the truth (docs/layer-format.md).
//
// A file of a frozen layer that has several names is such a file, too. And a copy may itself be
// frozen: then it has to be copied again before it gets another name. An entry of `index/` says in
// which epoch (the number of the upper of its time) its copy was made; those of older ones stay for
// as long as their layer does.
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
  std::uint32_t epoch = 0;        // of the copy
  bool copied() const { return upper_inode != 0; }
};

class LinkIndex final {
 public:
  // Whether something covers the name at this path, which is one of this file (inode and birth).
  using Covers = std::function<Result<bool>(const std::string& path, const LowerIdentity& file)>;

  // Loads the groups of a layer, and puts right what a kill left half done. `meta` must outlive
  // this.
  // `epochs`: of the frozen layers, and of upper as the largest.
  Status load(os::UniqueFd index_dir, layer::MetaStore& meta, const std::set<std::uint32_t>& epochs,
              const Covers& covers);
  // Copies are made for an upper with this number from now on.
  void begin_epoch(std::uint32_t epoch) {
    layered_ = true;
    epoch_ = epoch;
  }

  LinkGroup* find(const LowerIdentity& origin);
  // Whether the group has a copy that may be given more names.
  bool is_fresh(const LinkGroup& group) const { return group.epoch == epoch_; }
  // Whether an object of the layers is the copy of some group.
  bool is_copy(std::uint64_t inode) const { return copies_.contains(inode); }
  // Names that a frozen file without a copy lost since it was frozen.
  std::uint64_t lost_names(std::uint64_t frozen_inode) const;
  // Names that an object of the layers has in index/.
  std::uint64_t entries_of(std::uint64_t inode) const;
  // The names that such an object has in the merged view, given those that it has on disk.
  std::uint64_t shown_links(std::uint64_t inode, std::uint64_t links) const;

  // The staged copy (work_dir, staged) becomes that of the file with this many names in lower.
  Status add_copy(const LowerIdentity& origin, std::uint64_t names, std::uint64_t upper_inode,
                  int work_dir, const std::string& staged);
  // The staged copy (work_dir, staged) takes the place of the frozen one in every group that has
  // it.
  Status replace_copy(std::uint64_t frozen_inode, std::uint64_t upper_inode, int work_dir,
                      const std::string& staged);
  // The name of the group's copy in directory().
  static std::string copy_name(const LinkGroup& group) {
    return file_name(group.origin, group.epoch);
  }
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
  static std::string file_name(const LowerIdentity& key, std::uint32_t epoch);
  Status drop(const LowerIdentity& key);
  Status read_entries(const std::set<std::uint32_t>& epochs);
  Status set_copy(LinkGroup& group, std::uint64_t inode, int work_dir, const std::string& staged);
  void forget_copy(const LinkGroup& group);
  Status follow_copies();

  os::UniqueFd dir_;
  layer::MetaStore* meta_ = nullptr;
  std::unordered_map<LowerIdentity, LinkGroup, Hash> groups_;
  std::unordered_map<std::uint64_t, LowerIdentity> origins_;      // inode of the file -> key
  std::unordered_multimap<std::uint64_t, LowerIdentity> copies_;  // inode of the copy -> key
  std::unordered_map<std::uint64_t, std::uint64_t> entries_;      // inode -> names in index/
  std::uint32_t epoch_ = 1;
  bool layered_ = false;  // there are frozen layers, whose groups may be needed again
};

}  // namespace cofferdam::overlay
