#include "tests/fakes/layer_builder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "common/base/sha256.h"
#include "common/layer/layer_marks.h"

namespace cofferdam::fakes {
namespace {

namespace fs = std::filesystem;

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) {
    std::cerr << "test set-up failed: " << result.error().message() << "\n";
    std::abort();
  }
  return std::move(result).value();
}
void must(const Status& status) {
  if (status.ok()) return;
  std::cerr << "test set-up failed: " << status.error().message() << "\n";
  std::abort();
}

bool lstat_of(const fs::path& path, struct stat& st) {
  return ::lstat(path.c_str(), &st) == 0;
}

std::int64_t nanoseconds(const struct timespec& t) {
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

layer::Version version_of(const struct stat& st) {
  layer::Version v;
  v.kind = S_ISREG(st.st_mode)   ? layer::Kind::kFile
           : S_ISDIR(st.st_mode) ? layer::Kind::kDirectory
           : S_ISLNK(st.st_mode) ? layer::Kind::kSymlink
                                 : layer::Kind::kOther;
  v.mode = st.st_mode & 07777U;
  v.uid = st.st_uid;
  v.gid = st.st_gid;
  v.size = static_cast<std::uint64_t>(st.st_size);
  v.mtime_ns = nanoseconds(st.st_mtim);
  v.ctime_ns = nanoseconds(st.st_ctim);
  v.inode = st.st_ino;
  v.device = st.st_dev;
  return v;
}

}  // namespace

LayerBuilder::LayerBuilder(fs::path workspace)
    : workspace_(std::move(workspace)),
      sandbox_(must(os::TempDir::create(fakes::scratch_directory(), "cofferdam-layer-"))),
      meta_(must(layer::MetaStore::open(sandbox_.path() / "meta", 0))),
      theirs_(read_tree(workspace_)) {
  for (const char* name : {"upper", "work"}) {
    must(os::make_directories(sandbox_.path() / name));
  }
  set_rules(Json::array());
}

void LayerBuilder::set_rules(const Json& rules, bool attributes) {
  const Json policy = {
      {"version", 1},
      {"mounts", Json::array({{{"name", "workspace"}, {"rules", rules}, {"xattr", attributes}}})}};
  must(os::write_file_atomic(sandbox_.path() / "fs.json", canonical_json(policy)));
}

orchestrator::SandboxRecord LayerBuilder::record() const {
  orchestrator::SandboxRecord record;
  record.id = "0123456789abcdef";
  record.name = "test";
  record.state = orchestrator::SandboxState::kTerminated;
  record.workspace = workspace_.string();
  record.directory = sandbox_.path();
  return record;
}

void LayerBuilder::record_base(const std::string& path) {
  layer::BaseRecord record;
  record.path = path;
  std::string content;
  record.state = base_is_unknown ? layer::BaseState::kUnknown : layer::BaseState::kKnown;
  struct stat st {};
  if (lstat_of(lower(path), st)) {
    record.version = version_of(st);
    if (S_ISREG(st.st_mode)) content = must(os::read_file(lower(path), std::size_t{1} << 30U));
    if (S_ISLNK(st.st_mode)) content = fs::read_symlink(lower(path)).string();
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) {
      record.sha256 = sha256(content);
      record.stored = content.size() <= (4U << 20U);
    }
  }
  must(meta_.record_base(record, content));
}

void LayerBuilder::record_base_tree(const std::string& path) {
  record_base(path);
  struct stat st {};
  if (!lstat_of(lower(path), st) || !S_ISDIR(st.st_mode)) return;
  for (const auto& entry : fs::directory_iterator(lower(path))) {
    record_base_tree(path + "/" + entry.path().filename().string());
  }
}

bool LayerBuilder::lower_shows(const std::string& path) const {
  struct stat st {};
  if (!lstat_of(lower(path), st)) return false;
  for (std::string above = parent(path); !above.empty(); above = parent(above)) {
    if (!lstat_of(upper(above), st)) continue;
    if (!S_ISDIR(st.st_mode)) return false;
    const os::UniqueFd fd = must(os::open_file(upper(above), O_RDONLY | O_DIRECTORY));
    if (must(layer::is_opaque(fd.get()))) return false;
  }
  return true;
}

void LayerBuilder::copy_up_directory(const std::string& path) {
  if (path.empty()) return;
  struct stat st {};
  if (lstat_of(upper(path), st)) return;
  copy_up_directory(parent(path));
  record_base(path);
  write_node(sandbox_.path() / "upper", path, directory(theirs_.at(path).mode));
}

void LayerBuilder::put(const std::string& path, const Node& node) {
  record_base(path);
  copy_up_directory(parent(path));
  fs::remove_all(upper(path));
  must(meta_.remove_whiteout(path));
  write_node(sandbox_.path() / "upper", path, node);
  if (node.kind == NodeKind::kDirectory && lower_shows(path)) {
    record_base_tree(path);
    const os::UniqueFd fd = must(os::open_file(upper(path), O_RDONLY | O_DIRECTORY));
    must(layer::set_opaque(fd.get(), layer::own_mark_namespace()));
  }
  theirs_[path] = node;
}

void LayerBuilder::remove(const std::string& path) {
  const bool shows = lower_shows(path);
  if (shows) record_base_tree(path);
  copy_up_directory(parent(path));
  fs::remove_all(upper(path));
  if (shows && whiteouts_in_meta) {
    must(meta_.add_whiteout(path));
  } else if (shows) {
    const int code = ::mknod(upper(path).c_str(), S_IFCHR | 0600U, ::makedev(0, 0));
    if (code != 0) must(Status(Error::from_errno("mknod")));
  }
  for (const auto& [gone, node] : subtree(theirs_, path)) theirs_.erase(gone);
}

void LayerBuilder::chmod(const std::string& path, std::uint32_t mode) {
  Node node = theirs_.at(path);
  node.mode = mode;
  if (node.kind == NodeKind::kDirectory) {
    copy_up_directory(path);
    if (::chmod(upper(path).c_str(), mode) != 0) std::abort();
    theirs_[path] = node;
  } else {
    put(path, node);
  }
}

void LayerBuilder::rename(const std::string& from, const std::string& to) {
  const Tree moved = subtree(theirs_, from);
  remove(from);
  for (const auto& [path, node] : moved) put(to + path.substr(from.size()), node);
}

void LayerBuilder::read(const std::string& path) {
  struct stat st {};
  if (lstat_of(lower(path), st)) must(meta_.record_read({path, version_of(st)}));
}

void LayerBuilder::forge_upper(const std::string& path, const Node& node) {
  fs::remove_all(upper(path));
  write_node(sandbox_.path() / "upper", path, node);
}

}  // namespace cofferdam::fakes
