#include "orchestrator/changes/completeness.h"

#include <algorithm>

#include "orchestrator/reader/object_check.h"

namespace cofferdam::orchestrator::changes {

using reader::ObjectId;
using reader::ObjectType;

namespace {

// git goes down trees by recursion, and refuses more than 2048 (core.maxTreeDepth) where it does
// not run out of its stack: `git gc` would fail from then on.
constexpr std::uint32_t kMaxDepth = 1024;
// The same tree may stand in each of ten places of another one, and so on: git would never end.
constexpr std::uint64_t kMaxPlaces = 20'000'000;

}  // namespace

Result<std::vector<Completeness::Reference>> Completeness::references_of(
    const Received::Object& object) const {
  std::vector<Reference> references;
  if (object.type == ObjectType::kCommit) {
    TRY_ASSIGN(const auto links, reader::check_commit(object.content));
    references.emplace_back(links.tree, ObjectType::kTree);
    for (const ObjectId& parent : links.parents) {
      references.emplace_back(parent, ObjectType::kCommit);
    }
  } else if (object.type == ObjectType::kTree) {
    TRY_ASSIGN(const auto entries, reader::check_tree(object.content));
    references.reserve(entries.size());
    for (const auto& entry : entries) {
      if (entry.kind == reader::EntryKind::kSubmodule) {
        if (submodules_.contains(entry.id)) continue;
        return Error("\"" + std::string(entry.name) +
                     "\" is a submodule at a commit that is none of yours");
      }
      references.emplace_back(
          entry.id, entry.kind == reader::EntryKind::kTree ? ObjectType::kTree : ObjectType::kBlob);
    }
  }
  return references;
}

Result<bool> Completeness::look_at(const Reference& reference) {
  const auto& [id, type] = reference;
  const auto found = received_.objects.find(id);
  if (found == received_.objects.end()) {
    if (!is_here_(id)) return Error(reader::to_hex(id) + " is missing");
    TRY(add_to_path({}));
    return true;
  }
  if (found->second.type != type) return Error(reader::to_hex(id) + " is of another kind");
  const auto settled = settled_.find(id);
  if (settled != settled_.end()) {
    if (settled->second.reason != 0) return Error(reasons_[settled->second.reason - 1]);
    TRY(add_to_path(settled->second.extent));
    return true;
  }
  // On the path in any case: where it cannot be, it is as incomplete as what leads to it.
  path_.push_back({id, type, {}, 0, {}});
  TRY_ASSIGN(path_.back().references, references_of(found->second));
  return false;
}

Status Completeness::add_to_path(const Extent& below) {
  if (path_.empty() || path_.back().type != ObjectType::kTree) return {};
  Extent& extent = path_.back().extent;
  extent.depth = std::max(extent.depth, below.depth + 1);
  extent.places += 1 + below.places;
  if (extent.depth > kMaxDepth) return Error("directories that lie too deep in one another");
  if (extent.places > kMaxPlaces) return Error("more files than git could ever check out");
  return {};
}

Status Completeness::check(const ObjectId& tip) {
  path_.clear();
  Result<bool> looked = look_at({tip, ObjectType::kCommit});
  while (looked.ok() && !path_.empty()) {
    Step& step = path_.back();
    if (step.next == step.references.size()) {
      const Extent extent = step.extent;
      settled_.emplace(step.id, Settled{0, extent});
      path_.pop_back();
      if (const Status added = add_to_path(extent); !added.ok()) looked = added.error();
    } else {
      const Reference next = step.references[step.next++];
      looked = look_at(next);
    }
  }
  if (looked.ok()) return {};
  // Names are hashes of contents, so no path leads back into itself: all on it lead to the fault.
  reasons_.push_back(looked.error().message());
  for (const Step& step : path_) {
    settled_.emplace(step.id, Settled{static_cast<std::uint32_t>(reasons_.size()), {}});
  }
  path_.clear();
  return looked.error();
}

reader::ObjectIdSet reachable(const Received& received, const std::vector<ObjectId>& tips) {
  reader::ObjectIdSet found;
  std::vector<ObjectId> pending = tips;
  while (!pending.empty()) {
    const ObjectId id = pending.back();
    pending.pop_back();
    const auto object = received.objects.find(id);
    if (object == received.objects.end() || !found.insert(id).second) continue;
    if (object->second.type == ObjectType::kCommit) {
      const auto links = reader::check_commit(object->second.content);
      if (!links.ok()) continue;
      pending.push_back(links->tree);
      pending.insert(pending.end(), links->parents.begin(), links->parents.end());
    } else if (object->second.type == ObjectType::kTree) {
      const auto entries = reader::parse_tree(object->second.content);
      if (!entries.ok()) continue;
      for (const auto& entry : *entries) {
        if (entry.kind != reader::EntryKind::kSubmodule) pending.push_back(entry.id);
      }
    }
  }
  return found;
}

}  // namespace cofferdam::orchestrator::changes
