#include "fsproxy/overlay/link_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "fsproxy/overlay/lower_tree.h"
#include "fsproxy/overlay/tree_walk.h"

namespace cofferdam::overlay {

namespace {

struct IndexName {
  LowerIdentity key;
  std::uint32_t epoch = 0;
};

// "<inode>-<birth>" of the first upper, "<inode>-<birth>-<epoch>" of later ones.
std::optional<IndexName> parse_name(std::string_view text) {
  IndexName out;
  out.epoch = 1;
  const char* at = text.data();
  const char* end = at + text.size();
  const auto number = [&](auto& value) {
    const auto [next, code] = std::from_chars(at, end, value);
    if (code != std::errc()) return false;
    at = next;
    return true;
  };
  const auto dash = [&] { return at != end && *at++ == '-'; };
  if (!number(out.key.inode) || !dash() || !number(out.key.birth_ns)) return std::nullopt;
  if (at != end && (!dash() || !number(out.epoch))) return std::nullopt;
  if (at != end) return std::nullopt;
  return out;
}

}  // namespace

std::string LinkIndex::file_name(const LowerIdentity& key, std::uint32_t epoch) {
  std::string name = std::to_string(key.inode) + "-" + std::to_string(key.birth_ns);
  if (epoch > 1) name += "-" + std::to_string(epoch);
  return name;
}

Status LinkIndex::load(os::UniqueFd index_dir, layer::MetaStore& meta,
                       const std::set<std::uint32_t>& epochs, const Covers& covers) {
  dir_ = std::move(index_dir);
  meta_ = &meta;
  epoch_ = *epochs.rbegin();
  layered_ = epochs.size() > 1;
  std::set<std::pair<std::uint64_t, std::int64_t>> with_copy;
  TRY(meta.for_each_link_group([&](const layer::LinkGroupRecord& record) {
    const LowerIdentity id{0, record.inode, record.birth_ns};
    groups_[id] = {id, record.names, 0, {}, 0};
    origins_[id.inode] = id;
    if (record.upper != 0) with_copy.insert({record.inode, record.birth_ns});
  }));
  TRY(read_entries(epochs));
  TRY(follow_copies());
  std::vector<std::pair<std::string, LowerIdentity>> unfounded;
  Status checked;
  TRY(meta.for_each_link_name([&](std::string path, std::uint64_t inode, std::int64_t birth_ns) {
    const auto group = groups_.find({0, inode, birth_ns});
    const Result<bool> covered = covers(path, {0, inode, birth_ns});
    if (!covered.ok()) {
      if (checked.ok()) checked = covered.error();
    } else if (group == groups_.end() || !*covered) {
      unfounded.emplace_back(std::move(path), LowerIdentity{0, inode, birth_ns});
    } else {
      group->second.covered.insert(std::move(path));
    }
  }));
  TRY(checked);
  for (const auto& [path, id] : unfounded) {
    TRY(meta.remove_link_name(path, id.inode, id.birth_ns));
  }
  std::vector<LowerIdentity> all;
  for (const auto& [id, group] : groups_) all.push_back(id);
  for (const LowerIdentity& id : all) {
    const bool lost = with_copy.contains({id.inode, id.birth_ns}) && !groups_[id].copied();
    // With frozen layers, the copy may have been one of those that were dropped.
    if (lost && !layered_) {
      TRY(drop(id));
    } else {
      TRY(settle(id));
    }
  }
  return {};
}

// The copies: of each group the newest. What belongs to no group, or to an upper that is gone,
// goes.
Status LinkIndex::read_entries(const std::set<std::uint32_t>& epochs) {
  std::vector<std::string> strays;
  {
    TRY_ASSIGN(const DirStream stream, open_stream(dir_.get(), "."));
    for (;;) {
      TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
      if (!entry) break;
      const std::optional<IndexName> name = parse_name(entry->name);
      const auto group = name ? groups_.find(name->key) : groups_.end();
      if (!name || group == groups_.end() || !epochs.contains(name->epoch)) {
        strays.push_back(std::move(entry->name));
        continue;
      }
      ++entries_[entry->inode];
      if (name->epoch < group->second.epoch) continue;
      group->second.epoch = name->epoch;
      group->second.upper_inode = entry->inode;
    }
  }
  for (const auto& [id, group] : groups_) {
    if (group.copied()) copies_.emplace(group.upper_inode, id);
  }
  for (const std::string& name : strays) {
    if (::unlinkat(dir_.get(), name.c_str(), 0) != 0) return Error::from_errno("index");
  }
  return {};
}

LinkGroup* LinkIndex::find(const LowerIdentity& origin) {
  if (groups_.empty()) return nullptr;
  const auto found = groups_.find(key(origin));
  return found == groups_.end() ? nullptr : &found->second;
}

// A frozen copy that was copied again is nobody's copy any more. The number of an inode alone does
// not tell that it is the same file: lower may lie on another file system, and numbers of files
// that are gone are given again.
Status LinkIndex::follow_copies() {
  std::vector<std::pair<std::uint64_t, LowerIdentity>> outdated;
  for (const auto& [inode, id] : copies_) {
    const auto origin = origins_.find(inode);
    if (origin == origins_.end() || !groups_[origin->second].copied() ||
        !is_fresh(groups_[origin->second])) {
      continue;
    }
    TRY_ASSIGN(const LowerStat copy, stat_lower(dir_.get(), copy_name(groups_[id])));
    if (key(copy.identity) == origin->second) outdated.emplace_back(inode, origin->second);
  }
  for (const auto& [inode, id] : outdated) {
    const LinkGroup& again = groups_[id];
    TRY(replace_copy(inode, again.upper_inode, dir_.get(), copy_name(again)));
  }
  return {};
}

std::uint64_t LinkIndex::entries_of(std::uint64_t inode) const {
  const auto found = entries_.find(inode);
  return found == entries_.end() ? 0 : found->second;
}

std::uint64_t LinkIndex::lost_names(std::uint64_t frozen_inode) const {
  const auto origin = origins_.find(frozen_inode);
  if (origin == origins_.end()) return 0;
  const auto group = groups_.find(origin->second);
  return group == groups_.end() || group->second.copied() ? 0 : group->second.covered.size();
}

std::uint64_t LinkIndex::shown_links(std::uint64_t inode, std::uint64_t links) const {
  if (copies_.empty() && entries_.empty()) return links;
  // The names in index/ are nobody's.
  std::uint64_t shown = links - std::min(links, entries_of(inode));
  const auto [begin, end] = copies_.equal_range(inode);
  for (auto it = begin; it != end; ++it) {
    const auto group = groups_.find(it->second);
    if (group == groups_.end()) continue;
    shown += group->second.names -
             std::min<std::uint64_t>(group->second.names, group->second.covered.size());
  }
  return shown;
}

void LinkIndex::forget_copy(const LinkGroup& group) {
  const auto [begin, end] = copies_.equal_range(group.upper_inode);
  for (auto it = begin; it != end; ++it) {
    if (it->second != group.origin) continue;
    copies_.erase(it);
    return;
  }
}

// The staged copy gets its name in index/, and is the group's.
Status LinkIndex::set_copy(LinkGroup& group, std::uint64_t inode, int work_dir,
                           const std::string& staged) {
  if (group.copied()) forget_copy(group);
  group.upper_inode = inode;
  group.epoch = epoch_;
  copies_.emplace(inode, group.origin);
  TRY(meta_->set_link_group({group.origin.inode, group.origin.birth_ns, group.names, inode}));
  if (::linkat(work_dir, staged.c_str(), dir_.get(), file_name(group.origin, epoch_).c_str(), 0) !=
      0) {
    return Error::from_errno("index");
  }
  ++entries_[inode];
  return {};
}

Status LinkIndex::add_copy(const LowerIdentity& origin, std::uint64_t names,
                           std::uint64_t upper_inode, int work_dir, const std::string& staged) {
  const LowerIdentity id = key(origin);
  LinkGroup& group = groups_[id];
  group.origin = id;
  group.names = names;
  origins_[id.inode] = id;
  return set_copy(group, upper_inode, work_dir, staged);
}

Status LinkIndex::replace_copy(std::uint64_t frozen_inode, std::uint64_t upper_inode, int work_dir,
                               const std::string& staged) {
  std::vector<LowerIdentity> keys;
  const auto [begin, end] = copies_.equal_range(frozen_inode);
  for (auto it = begin; it != end; ++it) keys.push_back(it->second);
  for (const LowerIdentity& id : keys) TRY(set_copy(groups_[id], upper_inode, work_dir, staged));
  return {};
}

void LinkIndex::take_back(const LowerIdentity& origin) {
  const LowerIdentity id = key(origin);
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  LinkGroup& group = found->second;
  if (!group.copied()) return;
  forget_copy(group);
  if (::unlinkat(dir_.get(), file_name(id, group.epoch).c_str(), 0) == 0) {
    --entries_[group.upper_inode];
  }
  group.upper_inode = 0;
  // What cannot be written now is put right at the next start.
  (void)meta_->set_link_group({id.inode, id.birth_ns, group.names, 0}).ok();
}

void LinkIndex::uncover(const LowerIdentity& origin, const std::string& path) {
  const auto found = groups_.find(key(origin));
  if (found == groups_.end() || found->second.covered.erase(path) == 0) return;
  (void)meta_->remove_link_name(path, found->first.inode, found->first.birth_ns).ok();
}

Status LinkIndex::link_copy(const LinkGroup& group, int dir_fd, const std::string& name) {
  if (::linkat(dir_.get(), file_name(group.origin, group.epoch).c_str(), dir_fd, name.c_str(), 0) !=
      0) {
    return Error::from_errno("link to the copy");
  }
  return {};
}

Status LinkIndex::cover(const LowerIdentity& origin, std::uint64_t names, const std::string& path) {
  if (meta_ == nullptr) return {};
  const LowerIdentity id = key(origin);
  const auto found = groups_.find(id);
  if (found == groups_.end()) {
    TRY(meta_->set_link_group({id.inode, id.birth_ns, names, 0}));
    groups_[id] = {id, names, 0, {}, 0};
    origins_[id.inode] = id;
  }
  if (groups_[id].covered.contains(path)) return {};
  TRY(meta_->add_link_name(path, id.inode, id.birth_ns));
  groups_[id].covered.insert(path);
  return {};
}

Status LinkIndex::settle(const LowerIdentity& origin) {
  const LowerIdentity id = key(origin);
  const auto found = groups_.find(id);
  // Who goes back to a checkpoint needs it again.
  if (layered_) return {};
  if (found == groups_.end() || found->second.covered.size() < found->second.names) return {};
  return drop(id);
}

Status LinkIndex::drop(const LowerIdentity& id) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return {};
  if (found->second.copied()) {
    forget_copy(found->second);
    if (::unlinkat(dir_.get(), file_name(id, found->second.epoch).c_str(), 0) == 0) {
      --entries_[found->second.upper_inode];
    } else if (errno != ENOENT) {
      return Error::from_errno("index");
    }
  }
  origins_.erase(id.inode);
  groups_.erase(found);
  return meta_->forget_link_group(id.inode, id.birth_ns);
}

}  // namespace cofferdam::overlay
