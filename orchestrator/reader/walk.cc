#include "orchestrator/reader/walk.h"

#include <algorithm>

#include "orchestrator/reader/object_check.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::size_t kBatch = 1024;

}  // namespace

Status Walk::need(std::vector<Wanted> wanted) {
  std::vector<Wanted> unknown;
  for (const Wanted& one : wanted) {
    const auto [known, added] = seen_.emplace(one.first, one.second);
    if (!added && known->second != one.second) {
      return Error(to_hex(one.first) + " would be two kinds of object");
    }
    if (added) unknown.push_back(one);
  }
  if (seen_.size() > limits_.objects) return Error("more objects than are taken home");
  for (std::size_t at = 0; at < unknown.size(); at += kBatch) {
    const std::size_t end = std::min(at + kBatch, unknown.size());
    std::vector<ObjectId> ids;
    for (std::size_t i = at; i < end; ++i) ids.push_back(unknown[i].first);
    auto missing = host_.missing(ids);
    if (!missing.ok() || missing->size() != ids.size()) {
      broken_ = true;
      return missing.ok() ? Error("an answer of another length") : missing.error();
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if ((*missing)[i]) pending_.push_back(unknown[at + i]);
    }
  }
  return {};
}

Result<PackedObject> Walk::read(const ObjectId& id) {
  TRY_ASSIGN(auto loose, host_.loose(id));
  if (loose.has_value()) {
    const auto type = type_from_text(loose->type);
    if (!type) return Error("an object of an unknown type");
    return PackedObject{*type, std::move(loose->content)};
  }
  for (Pack& pack : packs_) {
    if (pack.holds(id)) return pack.read(id);
  }
  return Error("it is neither in your repository nor among what the sandbox wrote");
}

Status Walk::take_one(const Wanted& wanted) {
  const auto& [id, type] = wanted;
  TRY_ASSIGN(const PackedObject object, read(id));
  if (object.type != type) return Error("it is no " + std::string(to_text(type)));
  bytes_ += object.content.size();
  if (object.content.size() > limits_.object_bytes || bytes_ > limits_.all_bytes) {
    return Error("more bytes than are taken home");
  }
  if (id_of(object.type, object.content) != id) return Error("its content is another one");
  std::vector<Wanted> next;
  if (type == ObjectType::kCommit) {
    TRY_ASSIGN(const CommitLinks links, check_commit(object.content));
    next.emplace_back(links.tree, ObjectType::kTree);
    for (const ObjectId& parent : links.parents) next.emplace_back(parent, ObjectType::kCommit);
  } else if (type == ObjectType::kTree) {
    TRY_ASSIGN(const auto entries, check_tree(object.content));
    for (const TreeEntry& entry : entries) {
      if (entry.kind == EntryKind::kSubmodule) continue;
      next.emplace_back(entry.id,
                        entry.kind == EntryKind::kTree ? ObjectType::kTree : ObjectType::kBlob);
    }
  }
  if (Status given = host_.give(type, id, object.content); !given.ok()) {
    broken_ = true;
    return given;
  }
  return need(std::move(next));
}

Status Walk::take(const ObjectId& tip) {
  pending_.clear();
  TRY(need({{tip, ObjectType::kCommit}}));
  while (!pending_.empty()) {
    const Wanted wanted = pending_.back();
    pending_.pop_back();
    if (Status taken = take_one(wanted); !taken.ok()) {
      return std::move(taken).context(std::string(to_text(wanted.second)) + " " +
                                      to_hex(wanted.first));
    }
  }
  return {};
}

}  // namespace cofferdam::orchestrator::reader
