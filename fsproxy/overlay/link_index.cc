#include "fsproxy/overlay/link_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "fsproxy/overlay/tree_walk.h"

namespace cofferdam::overlay {

std::string LinkIndex::file_name(const LowerIdentity& key) {
  return std::to_string(key.inode) + "-" + std::to_string(key.birth_ns);
}

Status LinkIndex::load(os::UniqueFd index_dir, layer::MetaStore& meta, const Covers& covers) {
  dir_ = std::move(index_dir);
  meta_ = &meta;
  TRY(meta.for_each_link_group([&](const layer::LinkGroupRecord& record) {
    const LowerIdentity id{0, record.inode, record.birth_ns};
    groups_[id] = {id, record.names, record.upper, {}};
  }));
  std::vector<std::string> unfounded;
  Status checked;
  TRY(meta.for_each_link_name([&](std::string path, std::uint64_t inode, std::int64_t birth_ns) {
    const auto group = groups_.find({0, inode, birth_ns});
    const Result<bool> covered = covers(path);
    if (!covered.ok()) {
      if (checked.ok()) checked = covered.error();
    } else if (group == groups_.end() || !*covered) {
      unfounded.push_back(std::move(path));
    } else {
      group->second.covered.insert(std::move(path));
    }
  }));
  TRY(checked);
  for (const std::string& path : unfounded) TRY(meta.remove_link_name(path));
  std::vector<LowerIdentity> all;
  for (const auto& [id, group] : groups_) all.push_back(id);
  for (const LowerIdentity& id : all) {
    LinkGroup& group = groups_[id];
    if (group.copied()) {
      struct stat st {};
      const bool there =
          ::fstatat(dir_.get(), file_name(id).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
      if (!there || st.st_ino != group.upper_inode) {
        TRY(drop(id));
        continue;
      }
      copies_[group.upper_inode] = id;
    }
    TRY(settle(id));
  }
  return remove_strays();
}

Status LinkIndex::remove_strays() {
  std::vector<std::string> strays;
  {
    TRY_ASSIGN(const DirStream stream, open_stream(dir_.get(), "."));
    for (;;) {
      TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
      if (!entry) break;
      const auto group = copies_.find(entry->inode);
      if (group == copies_.end() || file_name(group->second) != entry->name) {
        strays.push_back(std::move(entry->name));
      }
    }
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

LinkGroup* LinkIndex::of_copy(std::uint64_t upper_inode) {
  if (copies_.empty()) return nullptr;
  const auto found = copies_.find(upper_inode);
  return found == copies_.end() ? nullptr : find(found->second);
}

std::uint64_t LinkIndex::shown_links(const LinkGroup& group, std::uint64_t links_in_upper) {
  const std::uint64_t covered = std::min<std::uint64_t>(group.names, group.covered.size());
  // The name in index/ is nobody's.
  return links_in_upper - std::min<std::uint64_t>(links_in_upper, 1) + group.names - covered;
}

Status LinkIndex::add_copy(const LowerIdentity& origin, std::uint64_t names,
                           std::uint64_t upper_inode, int work_dir, const std::string& staged) {
  const LowerIdentity id = key(origin);
  LinkGroup& group = groups_[id];
  group.origin = id;
  group.names = names;
  group.upper_inode = upper_inode;
  copies_[upper_inode] = id;
  TRY(meta_->set_link_group({id.inode, id.birth_ns, names, upper_inode}));
  if (::linkat(work_dir, staged.c_str(), dir_.get(), file_name(id).c_str(), 0) != 0) {
    return Error::from_errno("index");
  }
  return {};
}

void LinkIndex::take_back(const LowerIdentity& origin) {
  const LowerIdentity id = key(origin);
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  LinkGroup& group = found->second;
  if (!group.copied()) return;
  copies_.erase(group.upper_inode);
  (void)::unlinkat(dir_.get(), file_name(id).c_str(), 0);
  group.upper_inode = 0;
  // What cannot be written now is put right at the next start.
  (void)meta_->set_link_group({id.inode, id.birth_ns, group.names, 0}).ok();
}

void LinkIndex::uncover(const LowerIdentity& origin, const std::string& path) {
  const auto found = groups_.find(key(origin));
  if (found == groups_.end() || found->second.covered.erase(path) == 0) return;
  (void)meta_->remove_link_name(path).ok();
}

Status LinkIndex::link_copy(const LinkGroup& group, int dir_fd, const std::string& name) {
  if (::linkat(dir_.get(), file_name(group.origin).c_str(), dir_fd, name.c_str(), 0) != 0) {
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
    groups_[id] = {id, names, 0, {}};
  }
  if (groups_[id].covered.contains(path)) return {};
  TRY(meta_->add_link_name(path, id.inode, id.birth_ns));
  groups_[id].covered.insert(path);
  return {};
}

Status LinkIndex::settle(const LowerIdentity& origin) {
  const LowerIdentity id = key(origin);
  const auto found = groups_.find(id);
  if (found == groups_.end() || found->second.covered.size() < found->second.names) return {};
  return drop(id);
}

Status LinkIndex::drop(const LowerIdentity& id) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return {};
  if (found->second.copied()) {
    copies_.erase(found->second.upper_inode);
    if (::unlinkat(dir_.get(), file_name(id).c_str(), 0) != 0 && errno != ENOENT) {
      return Error::from_errno("index");
    }
  }
  groups_.erase(found);
  return meta_->forget_link_group(id.inode, id.birth_ns);
}

}  // namespace cofferdam::overlay
