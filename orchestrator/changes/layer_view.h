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

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"
#include "orchestrator/changes/binary_hunk.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

class LayerView final {
 public:
  static Result<LayerView> open(const SandboxRecord& sandbox);

  int upper() const { return upper_.get(); }
  int workspace() const { return workspace_.get(); }
  const layer::MetaStore& meta() const { return meta_; }
  const std::filesystem::path& workspace_path() const { return workspace_path_; }

  // What the workspace holds at `path` now, content hashed. A path below a link, a file or nothing
  // is absent.
  Result<ObjectState> ours(std::string_view path) const;

  // The workspace's file or link at `path`, streamed.
  Status read_ours(std::string_view path, const Sink& sink) const;
  // Streams content, by what it is rather than where: the upper layer's file or link at `path` ...
  Status read_theirs(std::string_view path, const Sink& sink) const;
  // ... and a base content: what is kept of it, else from the workspace at `path` when it still is
  // that. An error with ENOENT when it is nowhere.
  Status read_base(std::string_view path, const ObjectState& base, const Sink& sink) const;

 private:
  LayerView(os::UniqueFd upper, os::UniqueFd workspace, layer::MetaStore meta,
            std::filesystem::path workspace_path)
      : upper_(std::move(upper)),
        workspace_(std::move(workspace)),
        meta_(std::move(meta)),
        workspace_path_(std::move(workspace_path)) {}

  os::UniqueFd upper_;
  os::UniqueFd workspace_;
  layer::MetaStore meta_;
  std::filesystem::path workspace_path_;
};

layer::Kind kind_of_mode(std::uint32_t st_mode);

// The object `name` in an open directory, content hashed; absent when there is none.
Result<ObjectState> object_in(int directory, std::string_view name);

// Streams a regular file, or a link's text.
Status stream_object(int directory, std::string_view name, const Sink& sink);

}  // namespace cofferdam::orchestrator::changes
