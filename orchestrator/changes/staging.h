// Staging: new objects of a merge, made aside before they are moved into the workspace.
//
// Owners and permissions follow the repository: what replaces something gets its owner, attributes
// and access lists; what is new gets what its directory hands down (set-group-id, default access
// list). The umask has been applied to modes already (Collector).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "orchestrator/changes/bulk_tree.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/merge.h"

namespace cofferdam::orchestrator::changes {

class Staging final {
 public:
  // `objects`: the private directory in which everything is made. Both outlive it.
  Staging(const LayerView& view, int objects) : view_(view), objects_(objects) {}

  // Makes `name` as item.result says. Content comes from `content`; what was written is hashed and
  // must be just that. Directories are made with mode 0700: they are filled first. Returns the
  // inode number.
  Result<std::uint64_t> make(const MergeItem& item, const ContentSource& content,
                             const std::string& name);

  // The same of a whole directory of ignored content.
  Status make_tree(const MergeItem& item, const std::string& name, const Copied& copied = {});

 private:
  // Where a new object's owner comes from: what it replaces, or its nearest directory that is
  // there.
  struct Origin {
    uid_t uid = 0;
    gid_t gid = 0;
    bool set_group_id = false;
    os::UniqueFd directory;  // open when the object is new
    os::UniqueFd before;     // open when a file replaces a file
  };
  Result<Origin> origin_of(const MergeItem& item) const;
  Result<Origin> origin_of_file(const MergeItem& item) const;
  Result<os::UniqueFd> create_file(const MergeItem& item, const std::string& name,
                                   const Origin& origin) const;
  Result<std::uint64_t> make_file(const MergeItem& item, const ContentSource& content,
                                  const std::string& name, const Origin& origin) const;
  Status make_link(const MergeItem& item, const ContentSource& content, const std::string& name,
                   const Origin& origin) const;
  Status make_directory(const std::string& name, const Origin& origin) const;

  const LayerView& view_;
  int objects_;
};

}  // namespace cofferdam::orchestrator::changes
