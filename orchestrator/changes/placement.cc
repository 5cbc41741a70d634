#include "orchestrator/changes/placement.h"

#include <algorithm>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/changes/journal.h"

namespace cofferdam::orchestrator::changes {

bool Placement::admits(const std::string& path) const {
  if (!admitted_.has_value()) return false;
  if (is_selected(path, *admitted_)) return true;
  return std::any_of(admitted_->begin(), admitted_->end(),
                     [&](const std::string& below) { return is_selected(below, {path}); });
}

Top* Placement::judge(const std::string& path, bool is_dir) {
  const auto known = tops_.find(path);
  if (known != tops_.end()) return &known->second;
  Top top;
  if (is_dot_git(os::leaf_of(path))) {
    top.place = Place::kGitDirectory;
  } else if (path.starts_with(Journal::kPrefix)) {
    top.place = Place::kReserved;
  } else if (const policy::FsDecision decision = rules_.decide(path, is_dir); !decision.visible()) {
    top.place = Place::kHidden;
    top.detail = decision.rule;
  } else if (ignore_.is_ignored(path, is_dir)) {
    if (admits(path)) {
      ignored_plain_.insert(path);
      return nullptr;
    }
    top.place = Place::kIgnored;
  } else {
    return nullptr;
  }
  return &tops_.emplace(path, std::move(top)).first->second;
}

Top* Placement::top_of(const std::string& path, bool is_dir) {
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string ancestor = path.substr(0, slash);
    if (plain_directories_.contains(ancestor)) continue;
    if (Top* top = judge(ancestor, true); top != nullptr) return top;
    plain_directories_.insert(ancestor);
  }
  if (is_dir && plain_directories_.contains(path)) return nullptr;
  Top* top = judge(path, is_dir);
  if (top == nullptr && is_dir) plain_directories_.insert(path);
  return top;
}

}  // namespace cofferdam::orchestrator::changes
