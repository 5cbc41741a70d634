// Staging: a private directory at the top of the workspace, in its file system, where new objects
// are made before they are exchanged in, and where what they replace is kept until the merge is
// whole. Removed with everything in it when the merge has ended either way.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {

// Who is to own a new object; only root can give things away.
struct Owner {
  uid_t uid = 0;
  gid_t gid = 0;
};

class Staging final {
 public:
  static constexpr std::string_view kPrefix = ".cofferdam-merge-";

  // One that is there already belongs to a merge that runs or was killed: an error that names it.
  static Result<Staging> create(int workspace);

  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }

  // Makes `name` with the content that `change.theirs` describes; what was written is hashed and
  // must be just that. Directories are made open for their owner; set_mode gives them their own.
  Status make(const LayerView& view, const std::string& name, const Change& change, Owner owner);

  // Removes it with what lies in it (one level; directories must be empty).
  Status remove(int workspace);

 private:
  Staging(os::UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  Status make_file(const LayerView& view, const std::string& name, const Change& change,
                   Owner owner);

  os::UniqueFd fd_;
  std::string name_;
};

}  // namespace cofferdam::orchestrator::changes
