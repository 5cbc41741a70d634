// LayerView: a sandbox's layer and its workspace, held by descriptors; objects and their content.
//
// Nothing that is opened here is resolved through a link or across a mount. Content is streamed in
// pieces; only regular files are ever opened. Single thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"
#include "orchestrator/changes/binary_hunk.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/upper_stack.h"

namespace cofferdam::orchestrator::changes {

// A directory tree that is gone through in the order of its paths: the directory of the last one
// stays open. The root outlives it.
class HeldTree final {
 public:
  explicit HeldTree(int root) : root_(root) {}
  // An O_PATH descriptor of the directory that holds `path`; lives until the next call.
  Result<int> parent_of(std::string_view path);
  // Where directories themselves come and go.
  void forget() { directory_.reset(); }

 private:
  int root_;
  std::string path_;
  os::UniqueFd directory_;
};

class LayerView final {
 public:
  // Of the layer's files: so small ones are remembered as they were first read, so many bytes of
  // them in all. What is judged, shown and written is then the same.
  static constexpr std::uint64_t kMaxKeptFile = 64U << 10U;
  static constexpr std::uint64_t kMaxKept = 32U << 20U;

  static Result<LayerView> open(const SandboxRecord& sandbox);

  // What the sandbox made, over all its layers.
  const UpperStack& upper() const { return upper_; }
  int workspace() const { return workspace_.get(); }
  const layer::MetaStore& meta() const { return meta_; }
  const std::filesystem::path& workspace_path() const { return workspace_path_; }

  // What the workspace holds at `path` now, content hashed. A path below a link, a file or nothing
  // is absent.
  Result<ObjectState> ours(std::string_view path) const;

  // As HeldTree::parent_of of the workspace.
  Result<int> workspace_parent(std::string_view path) const {
    return held_workspace_.parent_of(path);
  }

  // The workspace's file or link at `path`, streamed.
  Status read_ours(std::string_view path, const Sink& sink) const;
  // Streams content, by what it is rather than where: the upper layer's file or link at `path` ...
  Status read_theirs(std::string_view path, const Sink& sink) const;
  // ... and a base content: what is kept of it, else from the workspace at `path` when it still is
  // that. An error with ENOENT when it is nowhere.
  Status read_base(std::string_view path, const ObjectState& base, const Sink& sink) const;

 private:
  LayerView(UpperStack upper, os::UniqueFd workspace, layer::MetaStore meta,
            std::filesystem::path workspace_path)
      : upper_(std::move(upper)),
        workspace_(std::move(workspace)),
        meta_(std::move(meta)),
        workspace_path_(std::move(workspace_path)) {}

  UpperStack upper_;
  os::UniqueFd workspace_;
  mutable HeldTree held_upper_{upper_.top()};
  mutable HeldTree held_workspace_{workspace_.get()};
  layer::MetaStore meta_;
  std::filesystem::path workspace_path_;
  mutable std::unordered_map<std::string, std::string> kept_;
  mutable std::uint64_t kept_bytes_ = 0;
};

layer::Kind kind_of_mode(std::uint32_t st_mode);

// The object `name` in an open directory, content hashed; absent when there is none.
Result<ObjectState> object_in(int directory, std::string_view name);

// Streams a regular file, or a link's text.
Status stream_object(int directory, std::string_view name, const Sink& sink);

}  // namespace cofferdam::orchestrator::changes
