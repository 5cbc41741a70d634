// UpperStack: everything that a sandbox made, over its upper and its frozen layers, as one tree.
//
// Nothing is resolved through a link. With one root it is that upper alone, whiteouts included.
// Single thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"

namespace cofferdam::orchestrator::changes {

class UpperStack final {
 public:
  // The layers of a layer directory, as they are now.
  static Result<UpperStack> open(const std::filesystem::path& layer, const layer::MetaStore& meta);
  static Result<UpperStack> open(const std::filesystem::path& layer);
  // Readable directories, the newest first; at least one.
  explicit UpperStack(std::vector<os::UniqueFd> roots) : roots_(std::move(roots)) {}

  int top() const { return roots_.front().get(); }
  bool is_single() const { return roots_.size() == 1; }

  // The one root in which alone something lies at `path`; nothing where several do, or none. What
  // shows there is then whole in it.
  std::optional<int> sole_root_of(std::string_view path) const;

  struct Directory {
    std::vector<os::UniqueFd> parts;  // readable, the newest first; empty: there is none
    bool detached = false;            // nothing of the workspace shows through
    std::string problem;              // why a part cannot be read; empty: none
  };
  Result<Directory> directory(std::string_view path) const;
  // The same directory as a stack of its own; nothing where there is none.
  Result<std::optional<UpperStack>> below(std::string_view path) const;
  // The directory that holds what shows at `path`; ENOENT where nothing does. A whiteout is
  // something.
  Result<os::UniqueFd> parent_of(std::string_view path) const;

 private:
  std::vector<os::UniqueFd> roots_;
};

}  // namespace cofferdam::orchestrator::changes
