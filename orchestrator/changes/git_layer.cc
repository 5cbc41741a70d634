#include "orchestrator/changes/git_layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/os/files.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/upper_walk.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr int kMaxBranchFiles = 100'000;

// At most `limit` bytes.
std::string first_bytes(int fd, std::size_t limit) {
  std::string bytes(limit, '\0');
  const ssize_t got = ::pread(fd, bytes.data(), limit, 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

// A regular file, opened without a wait; empty for everything else.
os::UniqueFd regular_file(const UpperStack& root, const std::string& path) {
  const auto parent = root.parent_of(path);
  if (!parent.ok()) return {};
  auto fd = os::open_in_tree(parent->get(), os::leaf_of(path), O_RDONLY | O_NOCTTY);
  struct stat st {};
  if (!fd.ok() || ::fstat(fd->get(), &st) != 0 || !S_ISREG(st.st_mode)) return {};
  return std::move(fd).value();
}

}  // namespace

Result<std::optional<GitLayer>> GitLayer::open(const SandboxRecord& sandbox,
                                               const HomeRepository& home) {
  const std::filesystem::path common = home.common_directory();
  const std::filesystem::path workspace(sandbox.workspace);
  std::filesystem::path layer;
  std::string own;
  const std::filesystem::path inside = common.lexically_relative(workspace);
  if (!inside.empty() && *inside.begin() != "..") {
    layer = sandbox.upper() / inside;
  } else {
    // A linked worktree: the common git directory was a mount of its own.
    layer = sandbox.directory / "gitdir/upper";
  }
  if (const auto name = home.git_directory().lexically_relative(common); name != ".") {
    own = name.string() + "/";
  }
  const std::filesystem::path top = inside.empty() || *inside.begin() == ".."
                                        ? sandbox.directory / "gitdir/upper"
                                        : sandbox.upper();
  const auto root = os::open_file(top, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!root.ok()) {
    if (root.error().error_number() == ENOENT) return std::optional<GitLayer>();
    return root.error().context("the sandbox's layer");
  }
  const auto below = layer.lexically_relative(top);
  TRY_ASSIGN(const UpperStack stack, UpperStack::open(top.parent_path()));
  auto opened = stack.below(below == "." ? std::string() : below.string());
  if (!opened.ok() || !opened->has_value()) return std::optional<GitLayer>();
  return std::optional<GitLayer>(GitLayer(std::move(**opened), own));
}

os::UniqueFd GitLayer::file(const std::string& path) const {
  return regular_file(common_, path);
}

std::optional<std::string> GitLayer::head(std::size_t limit) const {
  const os::UniqueFd fd = file(own_ + "HEAD");
  if (!fd) return std::nullopt;
  return first_bytes(fd.get(), limit);
}

Status GitLayer::for_each_branch(
    std::size_t limit,
    const std::function<Status(const std::string&, const std::string&)>& visit) const {
  const auto opened = common_.below("refs/heads");
  if (!opened.ok() || !opened->has_value()) return {};
  const UpperStack& heads = **opened;
  int files = 0;
  return walk_upper(heads, [&](const std::string& path, const UpperEntry& entry) -> Result<Visit> {
    if (entry.kind != layer::Kind::kFile || !entry.problem.empty()) {
      return Visit::kEnter;
    }
    if (++files > kMaxBranchFiles) return Error("more branches than git has use for");
    // What git writes before it renames it into place.
    if (path.ends_with(".lock")) return Visit::kSkip;
    const os::UniqueFd fd = regular_file(heads, path);
    if (fd) TRY(visit(path, first_bytes(fd.get(), limit)));
    return Visit::kSkip;
  });
}

Result<std::vector<std::string>> GitLayer::other_references(std::size_t limit) const {
  std::vector<std::string> found;
  const auto refs = common_.below("refs");
  if (!refs.ok() || !refs->has_value()) return found;
  TRY(walk_upper(**refs, [&](const std::string& path, const UpperEntry& entry) -> Result<Visit> {
    if (path == "heads" || found.size() == limit) return Visit::kSkip;
    const bool file = entry.kind == layer::Kind::kFile && !path.ends_with(".lock");
    if (file) found.push_back("refs/" + path);
    return Visit::kEnter;
  }));
  std::sort(found.begin(), found.end());
  return found;
}

os::UniqueFd GitLayer::packed_refs() const {
  return file("packed-refs");
}

Result<std::vector<GitLayer::PackFiles>> GitLayer::packs(std::size_t limit) const {
  std::vector<PackFiles> found;
  const auto opened = common_.below("objects/pack");
  if (!opened.ok() || !opened->has_value()) return found;
  const UpperStack& directory = **opened;
  const auto take = [&](std::string_view name) -> Status {
    constexpr std::string_view kIndex = ".idx";
    if (!name.starts_with("pack-") || !name.ends_with(kIndex)) return {};
    const std::string stem(name.substr(0, name.size() - kIndex.size()));
    PackFiles files{regular_file(directory, std::string(name)),
                    regular_file(directory, stem + ".pack")};
    if (!files.index || !files.pack) return {};
    if (found.size() == limit) {
      return Error("more than " + std::to_string(limit) + " packs: run git gc in the sandbox");
    }
    found.push_back(std::move(files));
    return {};
  };
  TRY(walk_upper(directory, [&](const std::string& name, const UpperEntry& entry) -> Result<Visit> {
    if (entry.kind == layer::Kind::kFile) TRY(take(name));
    return Visit::kSkip;
  }));
  return found;
}

os::UniqueFd GitLayer::loose_object(const reader::ObjectId& id) const {
  const std::string hex = reader::to_hex(id);
  return file("objects/" + hex.substr(0, 2) + "/" + hex.substr(2));
}

bool GitLayer::is_shallow() const {
  const os::UniqueFd fd = file("shallow");
  return fd && !first_bytes(fd.get(), 1).empty();
}

}  // namespace cofferdam::orchestrator::changes
