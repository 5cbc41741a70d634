#include "orchestrator/changes/upper_walk.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <unordered_set>
#include <vector>

#include "common/layer/layer_marks.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {
namespace {

// Directories that are held open, one in another; what lies deeper is opened by its path.
constexpr int kMaxDepth = 32;

struct Pending {
  std::string path;
  bool detached = false;
};

std::string joined(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

UpperEntry describe(int directory, std::string_view name) {
  UpperEntry entry;
  const auto st = os::stat_in(directory, name);
  if (!st.ok()) {
    entry.problem = st.error().message();
    return entry;
  }
  entry.kind = kind_of_mode(st->st_mode);
  entry.mode = st->st_mode & 07777U;
  entry.size = entry.kind == layer::Kind::kDirectory ? 0 : static_cast<std::uint64_t>(st->st_size);
  if (entry.kind == layer::Kind::kFile) {
    entry.holes = holes_of(*st);
  }
  entry.whiteout = layer::is_whiteout(*st);
  return entry;
}

}  // namespace

std::uint64_t holes_of(const struct stat& st) {
  const auto size = static_cast<std::uint64_t>(st.st_size);
  const std::uint64_t stored = static_cast<std::uint64_t>(st.st_blocks) * 512;
  return size > stored ? size - stored : 0;
}

namespace {

class Walker final {
 public:
  using Visitor = std::function<Result<Visit>(const std::string& path, const UpperEntry&)>;
  Walker(int upper, const Visitor& visit) : upper_(upper), visit_(visit) {
    pending_.push_back({std::string(), false});
  }

  Status walk() {
    while (!pending_.empty()) {
      const Pending current = std::move(pending_.back());
      pending_.pop_back();
      const auto directory = os::open_in_tree(upper_, current.path, O_RDONLY | O_DIRECTORY);
      if (directory.ok()) {
        TRY(enter(directory->get(), current.path, current.detached, 0));
        continue;
      }
      if (current.path.empty()) return directory.error().context("the upper layer");
      UpperEntry entry;
      entry.kind = layer::Kind::kDirectory;
      entry.detached = current.detached;
      entry.problem = directory.error().message();
      TRY_ASSIGN(const Visit ignored, visit_(current.path, entry));
      (void)ignored;
    }
    return {};
  }

 private:
  Status enter(int directory, const std::string& path, bool detached, int depth) {
    return os::for_each_name(directory, [&](std::string_view name) {
      return take(directory, joined(path, name), name, detached, depth);
    });
  }

  Status take(int directory, std::string path, std::string_view name, bool detached, int depth) {
    UpperEntry entry = describe(directory, name);
    entry.detached = detached;
    if (path.size() > os::kMaxTreePath) {
      entry.problem = "longer than a path may be";
      TRY_ASSIGN(const Visit refused, visit_(path, entry));
      (void)refused;
      return {};
    }
    os::UniqueFd child;
    if (entry.kind == layer::Kind::kDirectory && entry.problem.empty()) {
      auto opened = os::open_in_tree(directory, name, O_RDONLY | O_DIRECTORY);
      if (opened.ok()) {
        child = std::move(opened).value();
        TRY_ASSIGN(const bool opaque, layer::is_opaque(child.get()));
        entry.detached = entry.detached || opaque;
      }
    }
    TRY_ASSIGN(const Visit next, visit_(path, entry));
    if (next != Visit::kEnter || entry.kind != layer::Kind::kDirectory || !entry.problem.empty()) {
      return {};
    }
    if (child && depth < kMaxDepth) return enter(child.get(), path, entry.detached, depth + 1);
    pending_.push_back({std::move(path), entry.detached});
    return {};
  }

  int upper_;
  const Visitor& visit_;
  std::vector<Pending> pending_;
};

}  // namespace

Status walk_upper(
    int upper,
    const std::function<Result<Visit>(const std::string& path, const UpperEntry&)>& visit) {
  return Walker(upper, visit).walk();
}

Status walk_upper(
    const UpperStack& stack,
    const std::function<Result<Visit>(const std::string& path, const UpperEntry&)>& visit) {
  if (stack.is_single()) return walk_upper(stack.top(), visit);
  std::vector<std::string> pending{std::string()};
  while (!pending.empty()) {
    const std::string current = std::move(pending.back());
    pending.pop_back();
    TRY_ASSIGN(const UpperStack::Directory here, stack.directory(current));
    std::unordered_set<std::string> seen;
    for (const os::UniqueFd& part : here.parts) {
      TRY(os::for_each_name(part.get(), [&](std::string_view name) -> Status {
        if (!seen.emplace(name).second) return {};
        std::string path = joined(current, name);
        UpperEntry entry = describe(part.get(), name);
        entry.detached = here.detached;
        if (path.size() > os::kMaxTreePath) {
          entry.problem = "longer than a path may be";
        } else if (entry.kind == layer::Kind::kDirectory && entry.problem.empty()) {
          TRY_ASSIGN(const UpperStack::Directory below, stack.directory(path));
          entry.detached = below.detached;
          entry.problem = below.problem;
        }
        TRY_ASSIGN(const Visit next, visit(path, entry));
        if (next == Visit::kEnter && entry.kind == layer::Kind::kDirectory &&
            entry.problem.empty()) {
          pending.push_back(std::move(path));
        }
        return {};
      }));
    }
  }
  return {};
}

Result<TreeSize> measure_upper(const UpperStack& stack, const std::string& path) {
  TreeSize size{1, 0};
  TRY_ASSIGN(const std::optional<UpperStack> root, stack.below(path));
  if (!root) return size;
  TRY(walk_upper(*root, [&](const std::string&, const UpperEntry& entry) -> Result<Visit> {
    // A whiteout of a further layer only hides what is below it there.
    if (entry.whiteout && !root->is_single()) return Visit::kSkip;
    ++size.entries;
    if (entry.kind == layer::Kind::kFile) size.bytes += entry.size;
    return Visit::kEnter;
  }));
  return size;
}

}  // namespace cofferdam::orchestrator::changes
