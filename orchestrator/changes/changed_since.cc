// What somebody changed after a transaction, and what a tree looks like as a whole.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/transaction.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

std::string difference(const ObjectState& expected, const ObjectState& now) {
  if (now.absent()) return "it is gone";
  if (expected.absent()) return "there is something now";
  if (expected.kind != now.kind) return "it is something else now";
  if (expected.sha256 != now.sha256) return "its content changed";
  return "its mode changed";
}

}  // namespace

Result<std::vector<StuckStep>> Transaction::changed_since(Position at) const {
  std::vector<StuckStep> changed;
  const auto expected = plan_.states(at);
  const auto then = plan_.states(other(at));
  std::map<std::string, std::size_t> indices;
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) indices[plan_.steps[i].path] = i;

  for (const auto& [path, state] : expected) {
    const std::size_t index = indices.at(path);
    const std::string name(os::leaf_of(path));
    const auto parent = os::open_parent_in_tree(workspace_, path);
    if (plan_.steps[index].act == Step::Act::kTree && !state.absent()) {
      const auto found =
          parent.ok() ? tree_fingerprint(parent->get(), name) : Result<Sha256Digest>(Error(""));
      if (!found.ok() || *found != state.sha256) {
        changed.push_back({index, path, "something below it changed"});
      }
      continue;
    }
    ObjectState now;
    if (parent.ok()) {
      auto object = object_in(parent->get(), name);
      if (!object.ok()) return object.error().context(path);
      now = std::move(object).value();
    }
    if (!now.same_as(state)) {
      changed.push_back({index, path, difference(state, now)});
      continue;
    }
    const ObjectState& becomes = then.at(path);
    if (!becomes.absent() && !parent.ok()) {
      const std::string above(os::parent_of(path));
      const auto made = then.find(above);
      if (made == then.end() || made->second.kind != Kind::kDirectory) {
        changed.push_back({index, path, "its directory is gone"});
      }
    }
    // A directory that goes must hold nothing but what goes with it.
    if (state.kind != Kind::kDirectory || becomes.kind == Kind::kDirectory) continue;
    const auto directory = os::open_in_tree(parent->get(), name, O_RDONLY | O_DIRECTORY);
    if (!directory.ok()) return directory.error().context(path);
    TRY(os::for_each_name(directory->get(),
                          [&, above = path, step = index](std::string_view child) -> Status {
                            const std::string below = above + "/" + std::string(child);
                            const auto known = expected.find(below);
                            if (known == expected.end() || known->second.absent()) {
                              changed.push_back({step, below, "it was added since"});
                            }
                            return {};
                          }));
  }
  return changed;
}

namespace {

// Adds what stat tells of an object, and a link's text.
Status add_to(Sha256& hash, int directory, const std::string& name, const std::string& path,
              const struct stat& st) {
  std::string line = path;
  line += '\0';
  line += std::to_string(st.st_mode) + " " + std::to_string(st.st_mtim.tv_sec) + "." +
          std::to_string(st.st_mtim.tv_nsec);
  if (S_ISREG(st.st_mode)) line += " " + std::to_string(st.st_size);
  if (S_ISLNK(st.st_mode)) {
    TRY_ASSIGN(const std::string text, os::read_link_in(directory, name));
    line += " " + text;
  }
  line += '\0';
  hash.update(line);
  return {};
}

}  // namespace

Result<Sha256Digest> tree_fingerprint(int directory, std::string_view name) {
  Sha256 hash;
  TRY_ASSIGN(const struct stat top, os::stat_in(directory, name));
  TRY(add_to(hash, directory, std::string(name), "", top));
  // Directories by their path below `directory`; names in byte order.
  std::vector<std::string> stack;
  if (S_ISDIR(top.st_mode)) stack.emplace_back(name);
  while (!stack.empty()) {
    const std::string path = std::move(stack.back());
    stack.pop_back();
    TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(directory, path, O_RDONLY | O_DIRECTORY));
    std::vector<std::string> names;
    TRY(os::for_each_name(fd.get(), [&](std::string_view child) -> Status {
      names.emplace_back(child);
      return {};
    }));
    std::sort(names.begin(), names.end());
    for (const std::string& child : names) {
      TRY_ASSIGN(const struct stat st, os::stat_in(fd.get(), child));
      // Relative to the top, so that it may be moved.
      const std::string below = path + "/" + child;
      TRY(add_to(hash, fd.get(), child, below.substr(name.size()), st));
      if (S_ISDIR(st.st_mode)) stack.push_back(below);
    }
  }
  return hash.finish();
}

}  // namespace cofferdam::orchestrator::changes
