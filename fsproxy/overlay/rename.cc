// Rename within one mount: never EXDEV. What comes from lower is copied up first, whole.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/os/beneath.h"
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {

struct Overlay::Move {
  Node* from_dir = nullptr;
  std::string from_name;
  Node* to_dir = nullptr;
  std::string to_name;
  Node* source = nullptr;
  Node* target = nullptr;  // what is replaced or exchanged, if anything
  bool exchange = false;
  std::string from_path;
  std::string to_path;
  bool lower_at_source = false;
  bool lower_at_target = false;
  struct stat target_before {};
};

// Whether every object of the tree may leave `from` and appear at `to`.
Status Overlay::check_move(Node& top, const std::string& from, const std::string& to) {
  const policy::FsRules& rules = options_.rules;
  if (rules.empty() ||
      !(top.merged || rules.place_matters_below(from) || rules.place_matters_below(to))) {
    return {};
  }
  struct Level {
    Pin dir;
    std::string relative;
  };
  std::vector<Level> queue;
  queue.push_back({Pin(nodes_, top), ""});
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::string relative = queue[i].relative;
    Node& dir = *queue[i].dir;
    TRY_ASSIGN(const std::vector<ListedEntry> entries, list_raw(dir));
    for (const ListedEntry& entry : entries) {
      const std::string path = NodeTable::child_path(relative, entry.name);
      const bool is_dir = S_ISDIR(entry.type);
      for (const std::string& place : {from, to}) {
        const std::string full = place + "/" + path;
        const policy::FsDecision decision = rules.decide(full, is_dir);
        if (decision.changeable()) continue;
        observer_.refused("rename", full, decision);
        return Error::from_errno("rename", EACCES);
      }
      if (is_dir) {
        TRY_ASSIGN(const std::optional<Found> found, find_optional(dir, entry.name));
        if (found) queue.push_back({Pin(nodes_, *found->node), path});
      }
    }
  }
  return {};
}

Status Overlay::rename(NodeId parent, const std::string& name, NodeId new_parent,
                       const std::string& new_name, unsigned flags) {
  TRY(writable());
  constexpr unsigned kBoth = RENAME_NOREPLACE | RENAME_EXCHANGE;
  if ((flags & ~kBoth) != 0 || flags == kBoth) {
    return Error::from_errno("rename", EINVAL);
  }
  Move move;
  move.exchange = (flags & RENAME_EXCHANGE) != 0;
  move.from_name = name;
  move.to_name = new_name;
  if (new_name.size() > 255) return Error::from_errno("rename", ENAMETOOLONG);
  TRY_ASSIGN(move.from_dir, live_directory(parent));
  TRY_ASSIGN(move.to_dir, live_directory(new_parent));
  const Pin from_pin(nodes_, *move.from_dir);
  const Pin to_pin(nodes_, *move.to_dir);
  TRY_ASSIGN(const Found source, find(*move.from_dir, name));
  move.source = source.node;
  const Pin source_pin(nodes_, *move.source);
  TRY_ASSIGN(const std::optional<Found> target, find_optional(*move.to_dir, new_name));
  std::optional<Pin> target_pin;
  if (target) {
    move.target = target->node;
    target_pin.emplace(nodes_, *target->node);
  }
  if ((flags & RENAME_NOREPLACE) != 0 && target) return Error::from_errno("rename", EEXIST);
  if (move.exchange && !target) return Error::from_errno("rename", ENOENT);
  // Two names of one file: nothing happens (rename(2)).
  if (move.target == move.source) return {};
  if (move.source->is_dir() && nodes_.is_below(*move.to_dir, *move.source)) {
    return Error::from_errno("rename", EINVAL);
  }
  if (move.target != nullptr && move.target->is_dir() &&
      nodes_.is_below(*move.from_dir, *move.target)) {
    return Error::from_errno("rename", move.exchange ? EINVAL : ENOTEMPTY);
  }
  if (move.target != nullptr && !move.exchange) {
    if (move.target->is_dir() && !move.source->is_dir()) return Error::from_errno("rename", EISDIR);
    if (!move.target->is_dir() && move.source->is_dir()) {
      return Error::from_errno("rename", ENOTDIR);
    }
    if (move.target->is_dir()) {
      TRY_ASSIGN(const bool empty, is_empty(*move.target));
      if (!empty) return Error::from_errno("rename", ENOTEMPTY);
    }
  }
  move.from_path = nodes_.child_path(*move.from_dir, name);
  move.to_path = nodes_.child_path(*move.to_dir, new_name);
  TRY(prepare_move(move));
  TRY(move_in_upper(move));
  return finish_move(move);
}

// Rules, copies and records: nothing that the workload can see.
Status Overlay::prepare_move(Move& move) {
  Node& source = *move.source;
  const bool swaps_directory = move.exchange && move.target->is_dir();
  if (source.is_dir()) TRY(check_move(source, move.from_path, move.to_path));
  if (swaps_directory) {
    TRY(check_move(*move.target, move.to_path, move.from_path));
  }
  TRY(reserve_rows("rename", move.to_path, 2));
  TRY(copy_up(*move.from_dir));
  TRY(copy_up(*move.to_dir));
  TRY(source.is_dir() ? copy_up_tree(source) : copy_up(source));
  if (move.exchange) TRY(swaps_directory ? copy_up_tree(*move.target) : copy_up(*move.target));

  TRY_ASSIGN(const auto lower_source, below_at(*move.from_dir, move.from_name));
  move.lower_at_source = lower_source.has_value();
  TRY_ASSIGN(const auto lower_target, below_at(*move.to_dir, move.to_name));
  move.lower_at_target = lower_target.has_value();

  TRY(records_->begin());
  const auto record = [&]() -> Status {
    const auto place = [&](Node& dir, const std::string& name, const std::string& path,
                           const std::optional<LowerStat>& lower) -> Status {
      if (lower) return record_lower(dir, name, *lower, path);
      return dir.merged ? records_->record_absent(path) : Status();
    };
    TRY(place(*move.from_dir, move.from_name, move.from_path, lower_source));
    TRY(place(*move.to_dir, move.to_name, move.to_path, lower_target));
    return {};
  };
  const Status recorded = record();
  TRY(records_->commit());
  TRY(recorded);

  // Where lower has, or may get, a directory, nothing of it must show through.
  if (source.is_dir() && move.to_dir->stacked()) TRY(mark_opaque(source));
  if (swaps_directory && move.from_dir->stacked()) TRY(mark_opaque(*move.target));
  return {};
}

Status Overlay::move_in_upper(Move& move) {
  TRY_ASSIGN(const DirRef from, dirs_->upper(*move.from_dir));
  TRY_ASSIGN(const DirRef to, dirs_->upper(*move.to_dir));
  const auto rename_with = [&](unsigned flags) {
    return ::renameat2(from->get(), move.from_name.c_str(), to->get(), move.to_name.c_str(),
                       flags) == 0;
  };
  if (move.exchange) {
    if (!rename_with(RENAME_EXCHANGE)) return Error::from_errno("rename");
    return {};
  }
  struct stat& before = move.target_before;
  bool target_whiteout = false;
  if (::fstatat(to->get(), move.to_name.c_str(), &before, AT_SYMLINK_NOFOLLOW) == 0) {
    target_whiteout = layer::is_whiteout(before);
  } else {
    before.st_nlink = 0;
  }
  if (move.source->is_dir() && target_whiteout) {
    // A directory cannot be renamed over a device: they change places, and the source's name has
    // its whiteout in the same step.
    if (!rename_with(RENAME_EXCHANGE)) return Error::from_errno("rename");
    if (!move.lower_at_source) {
      if (::unlinkat(from->get(), move.from_name.c_str(), 0) != 0) {
        return Error::from_errno("rename: whiteout");
      }
      ledger_.add(0, -1);
    }
    return {};
  }
  if (move.target != nullptr && move.target->is_dir() && move.target->upper) {
    // Empty to the workload, but perhaps not on disk.
    TRY(mark_opaque(*move.target));
  }
  if (target_whiteout) ledger_.add(0, -1);
  if (!move.lower_at_source) {
    if (!rename_with(0)) return Error::from_errno("rename");
    return {};
  }
  if (rename_with(RENAME_WHITEOUT)) {
    ledger_.add(0, 1);
    return {};
  }
  if (errno != EINVAL && errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) {
    return Error::from_errno("rename");
  }
  // A row counts only where upper has nothing, so it is written first.
  TRY(meta_->add_whiteout(move.from_path));
  whiteout_rows_.insert(move.from_path);
  if (!rename_with(0)) return Error::from_errno("rename");
  return {};
}

Status Overlay::finish_move(Move& move) {
  Node& source = *move.source;
  charge_directory(*move.from_dir);
  charge_directory(*move.to_dir);
  if (move.target != nullptr) {
    if (move.exchange) {
      nodes_.remove_name(*move.target, *move.to_dir, move.to_name);
    } else {
      gone(*move.target, *move.to_dir, move.to_name, move.target_before);
    }
  }
  nodes_.remove_name(source, *move.from_dir, move.from_name);
  nodes_.add_name(source, *move.to_dir, move.to_name);
  if (move.exchange) {
    nodes_.add_name(*move.target, *move.from_dir, move.from_name);
  }
  if (whiteout_rows_.contains(move.to_path)) {
    TRY(meta_->remove_whiteout(move.to_path));
    whiteout_rows_.erase(move.to_path);
  }
  return {};
}

}  // namespace cofferdam::overlay
