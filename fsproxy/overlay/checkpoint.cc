// Freezing upper while the workload runs, and the frozen layers at the start.
#include <fcntl.h>
#include <unistd.h>

#include "common/layer/layer_stack.h"
#include "common/os/files.h"
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {

Status Overlay::open_frozen_layers() {
  TRY_ASSIGN(std::vector<layer::FrozenLayer> layers, layer::open_frozen(*options_.layer, *meta_));
  for (layer::FrozenLayer& one : layers) {
    os::UniqueFd again(::fcntl(one.root.get(), F_DUPFD_CLOEXEC, 3));
    if (!again) return Error::from_errno("frozen layer");
    struct stat st {};
    struct stat own {};
    if (::fstat(again.get(), &st) != 0 || ::fstat(upper_root_.get(), &own) != 0) {
      return Error::from_errno("frozen layer");
    }
    // Inode numbers tell objects of all layers apart.
    if (st.st_dev != own.st_dev) return Error("a frozen layer lies on another file system");
    dirs_->add_frozen(one.number, std::move(again));
    frozen_layers_.push_back(one.number);
    frozen_roots_.push_back(std::move(one.root));
  }
  nodes_.root().parts = frozen_layers_;
  return load_links();
}

Status Overlay::prepare_freeze() {
  TRY(writable());
  TRY(flush_records());
  if (freeze_) return Error::from_errno("checkpoint", EBUSY);
  TRY_ASSIGN(freeze_, layer::Freeze::prepare(*options_.layer, *meta_));
  return {};
}

Status Overlay::exchange_upper() {
  return freeze_->exchange();
}

Status Overlay::take_back_freeze() {
  if (!freeze_) return {};
  const Status back = freeze_->take_back();
  freeze_.reset();
  return back;
}

Status Overlay::commit_freeze(layer::Checkpoint& checkpoint) {
  // What can fail comes before the commit.
  const std::filesystem::path layer = *options_.layer;
  TRY_ASSIGN(os::UniqueFd path, os::open_file(layer / "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW));
  TRY_ASSIGN(os::UniqueFd root,
             os::open_file(layer / "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  TRY(freeze_->commit(checkpoint));
  const std::uint32_t number = freeze_->number();
  const std::uint64_t inode = freeze_->new_inode();
  freeze_.reset();
  dirs_->freeze(number, std::move(path));
  frozen_layers_.insert(frozen_layers_.begin(), number);
  frozen_roots_.insert(frozen_roots_.begin(), std::exchange(upper_root_, std::move(root)));
  frozen_names_.clear();
  links_.begin_epoch(number + 1);
  Node& top = nodes_.root();
  struct stat old {};
  struct stat now {};
  if (::fstat(frozen_roots_.front().get(), &old) == 0 && ::fstat(upper_root_.get(), &now) == 0) {
    (void)owners_.set(inode, now, owners_.of(old.st_ino, old)).ok();
  }
  nodes_.for_each([&](Node& node) {
    if (&node != &top) note_frozen(node, number);
  });
  top.parts.insert(top.parts.begin(), number);
  nodes_.set_upper(top, inode);
  // The root is there before anything is made: its first block is nobody's.
  top.blocks = 8;
  charge_directory(top);
  // It is in `meta` already.
  (void)numbers_.remember(inode, top.shown_inode).ok();
  return {};
}

// The object of the node lay in the upper that is now a frozen layer.
void Overlay::note_frozen(Node& node, std::uint32_t layer) {
  if (!node.upper) return;
  if (node.names.empty()) {
    // What has no name at all lies in no layer; another name may be one that nobody asked for.
    struct stat st {};
    if (node.files.empty() || ::fstat(node.files.front()->fd.get(), &st) != 0 || st.st_nlink == 0) {
      return;
    }
  }
  nodes_.set_frozen(node, layer, node.upper_inode);
  if (node.is_dir()) node.parts.insert(node.parts.begin(), layer);
  for (OpenFile* file : node.files) file->lower = true;
}

bool Overlay::lies_in_upper(NodeId id) {
  const Node* node = nodes_.find(id);
  return node != nullptr && node->upper;
}

std::vector<NodeId> Overlay::open_for_writing() const {
  std::vector<NodeId> out;
  for (const auto& [file, owned] : files_) {
    if (file->writable) out.push_back(file->node->id);
  }
  return out;
}

}  // namespace cofferdam::overlay
