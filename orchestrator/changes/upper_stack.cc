#include "orchestrator/changes/upper_stack.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/layer/layer_marks.h"
#include "common/layer/layer_stack.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::orchestrator::changes {

Result<UpperStack> UpperStack::open(const std::filesystem::path& layer,
                                    const layer::MetaStore& meta) {
  TRY_ASSIGN(layer::ReadStack stack, layer::open_stack(layer, meta));
  return UpperStack(std::move(stack.roots));
}

Result<UpperStack> UpperStack::open(const std::filesystem::path& layer) {
  const auto meta = layer::MetaStore::open_for_reading(layer / "meta");
  if (meta.ok()) return open(layer, *meta);
  std::error_code code;
  if (std::filesystem::exists(layer / "meta", code)) return meta.error();
  // It never ran.
  std::vector<os::UniqueFd> roots;
  TRY_ASSIGN(os::UniqueFd upper,
             os::open_file(layer / "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  roots.push_back(std::move(upper));
  return UpperStack(std::move(roots));
}

std::optional<int> UpperStack::sole_root_of(std::string_view path) const {
  std::optional<int> found;
  for (const os::UniqueFd& root : roots_) {
    const auto parent = os::open_parent_in_tree(root.get(), path);
    // Where it cannot be looked it may lie.
    const auto is_absence = [](int number) { return number == ENOENT || number == ENOTDIR; };
    if (!parent.ok()) {
      if (is_absence(parent.error().error_number())) continue;
      return std::nullopt;
    }
    const auto st = os::stat_in(parent->get(), os::leaf_of(path));
    if (!st.ok()) {
      if (is_absence(st.error().error_number())) continue;
      return std::nullopt;
    }
    if (found) return std::nullopt;
    found = root.get();
  }
  return found;
}

Result<UpperStack::Directory> UpperStack::directory(std::string_view path) const {
  Directory at;
  for (const os::UniqueFd& root : roots_) {
    TRY_ASSIGN(os::UniqueFd part, os::open_in_tree(root.get(), "", O_RDONLY | O_DIRECTORY));
    at.parts.push_back(std::move(part));
  }
  for (std::size_t from = 0; from < path.size();) {
    const std::size_t slash = std::min(path.find('/', from), path.size());
    const std::string_view name = path.substr(from, slash - from);
    from = slash + 1;
    std::vector<os::UniqueFd> next;
    bool cut = false;
    for (const os::UniqueFd& part : at.parts) {
      const auto st = os::stat_in(part.get(), name);
      if (!st.ok()) {
        if (st.error().error_number() == ENOENT) continue;
        return st.error();
      }
      if (!S_ISDIR(st->st_mode)) {
        cut = true;
        break;
      }
      auto opened = os::open_in_tree(part.get(), name, O_RDONLY | O_DIRECTORY);
      if (!opened.ok()) {
        at.problem = opened.error().message();
        cut = true;
        break;
      }
      TRY_ASSIGN(const bool opaque, layer::is_opaque(opened->get()));
      next.push_back(std::move(opened).value());
      cut = opaque;
      if (cut) break;
    }
    at.detached = at.detached || cut;
    at.parts = std::move(next);
    if (at.parts.empty()) return at;
  }
  return at;
}

Result<std::optional<UpperStack>> UpperStack::below(std::string_view path) const {
  TRY_ASSIGN(Directory found, directory(path));
  if (found.parts.empty()) return std::optional<UpperStack>();
  return std::optional<UpperStack>(UpperStack(std::move(found.parts)));
}

Result<os::UniqueFd> UpperStack::parent_of(std::string_view path) const {
  if (is_single()) return os::open_parent_in_tree(top(), path);
  TRY_ASSIGN(Directory parent, directory(os::parent_of(path)));
  for (os::UniqueFd& part : parent.parts) {
    if (os::stat_in(part.get(), os::leaf_of(path)).ok()) return std::move(part);
  }
  return Error::from_errno("the sandbox's layers", ENOENT);
}

}  // namespace cofferdam::orchestrator::changes
