#include "orchestrator/changes/layer_view.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::orchestrator::changes {
namespace {

bool is_missing(const Error& error) {
  // ELOOP: a component is a link; EXDEV: a mount or a way out.
  const int number = error.error_number();
  return number == ENOENT || number == ENOTDIR || number == ELOOP || number == EXDEV;
}

Result<os::UniqueFd> open_root(const std::filesystem::path& path) {
  return os::open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Status stream_file(int fd, const Sink& sink) {
  struct stat opened {};
  if (::fstat(fd, &opened) != 0) return Error::from_errno("stat");
  if (!S_ISREG(opened.st_mode)) return Error("not a regular file", EINVAL);
  constexpr std::size_t kMost = 256U << 10U;
  const auto size = static_cast<std::size_t>(opened.st_size);
  // One byte more than there should be: less than that is the end.
  const std::size_t room = std::min(size, kMost - 1) + 1;
  const auto buffer = std::make_unique_for_overwrite<char[]>(room);
  std::size_t total = 0;
  while (true) {
    const ssize_t got = ::read(fd, buffer.get(), room);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("read");
    }
    if (got == 0) return {};
    const auto bytes = static_cast<std::size_t>(got);
    total += bytes;
    TRY(sink({buffer.get(), bytes}));
    if (bytes < room && total >= size) return {};
  }
}

// What it was a moment ago: nothing else is opened, for that may have effects.
Status stream_kind(int directory, std::string_view name, layer::Kind kind, const Sink& sink) {
  if (kind == layer::Kind::kSymlink) {
    TRY_ASSIGN(const std::string text, os::read_link_in(directory, name));
    return sink(text);
  }
  if (kind != layer::Kind::kFile) return Error("not a regular file", EINVAL);
  const std::string text(name);
  const os::UniqueFd fd(
      ::openat(directory, text.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!fd) return Error::from_errno("open");
  return stream_file(fd.get(), sink);
}

}  // namespace

Result<int> HeldTree::parent_of(std::string_view path) {
  const std::string_view parent = os::parent_of(path);
  if (directory_ && path_ == parent) return directory_.get();
  TRY_ASSIGN(directory_, os::open_parent_in_tree(root_, path));
  path_ = parent;
  return directory_.get();
}

layer::Kind kind_of_mode(std::uint32_t st_mode) {
  if (S_ISREG(st_mode)) return layer::Kind::kFile;
  if (S_ISDIR(st_mode)) return layer::Kind::kDirectory;
  if (S_ISLNK(st_mode)) return layer::Kind::kSymlink;
  return layer::Kind::kOther;
}

Status stream_object(int directory, std::string_view name, const Sink& sink) {
  TRY_ASSIGN(const struct stat st, os::stat_in(directory, name));
  return stream_kind(directory, name, kind_of_mode(st.st_mode), sink);
}

Result<ObjectState> object_in(int directory, std::string_view name) {
  const auto st = os::stat_in(directory, name);
  ObjectState state;
  if (!st.ok()) {
    if (is_missing(st.error())) return state;
    return st.error();
  }
  state.kind = kind_of_mode(st->st_mode);
  if (state.kind != layer::Kind::kSymlink) state.mode = st->st_mode & 07777U;
  if (state.kind == layer::Kind::kFile || state.kind == layer::Kind::kSymlink) {
    Sha256 hash;
    TRY(stream_kind(directory, name, state.kind, [&](std::string_view bytes) -> Status {
      hash.update(bytes);
      state.size += bytes.size();
      return {};
    }));
    state.sha256 = hash.finish();
  }
  return state;
}

Result<LayerView> LayerView::open(const SandboxRecord& sandbox) {
  auto workspace = open_root(sandbox.workspace);
  if (!workspace.ok()) return workspace.error().context("the workspace");
  TRY_ASSIGN(layer::MetaStore meta, layer::MetaStore::open_for_reading(sandbox.meta()));
  TRY_ASSIGN(UpperStack upper, UpperStack::open(sandbox.directory, meta));
  return LayerView(std::move(upper), std::move(workspace).value(), std::move(meta),
                   sandbox.workspace);
}

Result<ObjectState> LayerView::ours(std::string_view path) const {
  const auto parent = held_workspace_.parent_of(path);
  if (!parent.ok()) {
    if (is_missing(parent.error())) return ObjectState{};
    return parent.error();
  }
  return object_in(*parent, os::leaf_of(path));
}

Status LayerView::read_theirs(std::string_view path, const Sink& sink) const {
  const std::string key(path);
  if (const auto known = kept_.find(key); known != kept_.end()) return sink(known->second);
  std::string bytes;
  bool whole = true;
  os::UniqueFd found;
  int parent = -1;
  if (upper_.is_single()) {
    TRY_ASSIGN(parent, held_upper_.parent_of(path));
  } else {
    TRY_ASSIGN(found, upper_.parent_of(path));
    parent = found.get();
  }
  TRY(stream_object(parent, os::leaf_of(path), [&](std::string_view piece) -> Status {
    whole = whole && bytes.size() + piece.size() <= kMaxKeptFile;
    if (whole) bytes += piece;
    return sink(piece);
  }));
  if (!whole || bytes.size() > kMaxKept - kept_bytes_) return {};
  kept_bytes_ += bytes.size();
  kept_.emplace(key, std::move(bytes));
  return {};
}

Status LayerView::read_base(std::string_view path, const ObjectState& base,
                            const Sink& sink) const {
  if (!base.sha256.has_value()) return Error::from_errno("base content", ENOENT);
  TRY_ASSIGN(const auto record, meta_.base(path));
  if (record && record->sha256 == base.sha256) {
    TRY_ASSIGN(const auto kept, meta_.base_content(path));
    if (kept) return sink(*kept);
  }
  auto now = ours(path);
  if (!now.ok()) return now.error();
  if (now->kind != base.kind || now->sha256 != base.sha256) {
    return Error::from_errno("base content", ENOENT);
  }
  return read_ours(path, sink);
}

Status LayerView::read_ours(std::string_view path, const Sink& sink) const {
  TRY_ASSIGN(const int parent, held_workspace_.parent_of(path));
  return stream_object(parent, os::leaf_of(path), sink);
}

}  // namespace cofferdam::orchestrator::changes
