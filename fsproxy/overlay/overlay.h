// Overlay: the merged view of one mount, and every change of it. Has never heard of FUSE.
//
// One thread uses it. System calls take the descriptor of a directory and one name; upper is
// changed only by rename, link or creation of whole objects, so that a kill at any moment leaves it
// consistent. Errors carry the errno that the workload is to see; stats, too, show what it sees.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/base/result.h"
#include "common/layer/freeze.h"
#include "common/layer/layer_marks.h"
#include "common/policy/fs_rules.h"
#include "fsproxy/overlay/copy_job.h"
#include "fsproxy/overlay/dir_cache.h"
#include "fsproxy/overlay/frozen_names.h"
#include "fsproxy/overlay/inode_numbers.h"
#include "fsproxy/overlay/ledger.h"
#include "fsproxy/overlay/link_index.h"
#include "fsproxy/overlay/listing.h"
#include "fsproxy/overlay/lower_watch.h"
#include "fsproxy/overlay/node_table.h"
#include "fsproxy/overlay/owners.h"
#include "fsproxy/overlay/records.h"

namespace cofferdam::overlay {

struct Options {
  std::optional<std::string> lower;  // absolute path; none: starts empty
  std::optional<std::string> layer;  // layer directory; none: read only
  bool writable = false;
  bool record = false;
  bool extended = false;    // attributes user.* exist, and go along with a copy-up
  OwnerPolicy owners = {};  // how ids look
  uid_t owner_uid = 0;      // of what is made in upper, on disk
  gid_t owner_gid = 0;
  policy::FsRules rules;
  std::size_t dir_capacity = 512;              // cached directory descriptors per tree
  std::size_t max_open = 8192;                 // open files, and as many listings
  std::size_t max_listed_bytes = 256U << 20U;  // of all open listings together
  LowerWatch* watch = nullptr;                 // must outlive the view
};

// Told of what the view refuses or notices. Called on the mount's thread; must not call back.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void refused(std::string_view operation, const std::string& path,
                       const policy::FsDecision& decision) = 0;
  virtual void quota_exceeded(std::string_view operation, const std::string& path) = 0;
  virtual void changed_under(const std::string& path, NodeId node) = 0;
};

// An open regular file.
struct OpenFile {
  Node* node = nullptr;
  // None yet in a small file of lower that was read before, in the same version: most are closed
  // again without a question. See open_late().
  os::UniqueFd fd;
  // Reads the object of lower or of a frozen layer; moved to upper when the file is copied up. A
  // writable one is moved before it is written through.
  bool lower = false;
  bool writable = false;
  layer::Version opened;  // of a lower file, when it was opened
};

// `entries` stand in the order of their offsets. The offset of an entry depends on nothing but its
// name: it stays what it is while others come and go, and from one listing to the next.
struct OpenDir {
  Node* node = nullptr;
  Listing entries;  // with "." and ".."
  bool listed = false;
};

struct Entry {
  Node* node = nullptr;
  struct stat st {};
  // What the name leads to, and the attributes: only the workload can change them, or changes are
  // told.
  bool name_stable = false;
  bool attributes_stable = false;
};

// What to set; unset members stay.
struct Changes {
  std::optional<mode_t> mode;
  std::optional<off_t> size;
  std::optional<struct timespec> atime;  // tv_nsec may be UTIME_NOW
  std::optional<struct timespec> mtime;
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  bool touch = false;  // nothing but the time of the last change

  bool owner() const { return uid || gid || touch; }
};

class Overlay final {
 public:
  // Opens both trees, `meta` and `base/`, creates what is missing in the layer, empties `work/`.
  static Result<std::unique_ptr<Overlay>> open(Options options, Ledger& ledger, Observer& observer);

  // --- names and attributes. lookup and the makers add one reference to the node.
  Result<Entry> lookup(NodeId parent, const std::string& name);
  void forget(NodeId id, std::uint64_t count);
  Result<Entry> attributes(NodeId id);
  Result<Entry> change(NodeId id, const Changes& changes, OpenFile* file);
  Result<std::string> read_symlink(NodeId id);
  // Whether a negative answer for a name below the directory, or its listing, can change without a
  // word.
  bool lower_can_add(NodeId parent);
  // Lower changed at (dir, name), or the directory itself where `name` is empty: what is out of
  // date. `entries`: names came or went, else content or attributes are others.
  std::vector<Stale> lower_changed(NodeId dir, const std::string& name, bool entries);
  // The same after changes that nobody could tell one by one.
  std::vector<Stale> everything_changed();

  // --- changes of directories. `by`: who makes it; without it, it shows as what is on disk. In a
  // set-group-id directory, the group is the directory's (inode(7)).
  using Maker = std::optional<Owner>;
  Result<Entry> make_directory(NodeId parent, const std::string& name, mode_t mode, Maker by = {});
  Result<Entry> make_symlink(NodeId parent, const std::string& name, const std::string& target,
                             Maker by = {});
  // Regular files, FIFOs and sockets; devices are EPERM.
  Result<Entry> make_node(NodeId parent, const std::string& name, mode_t mode, Maker by = {});
  Result<Entry> link(NodeId id, NodeId parent, const std::string& name);
  Status unlink(NodeId parent, const std::string& name);
  Status remove_directory(NodeId parent, const std::string& name);
  Status rename(NodeId parent, const std::string& name, NodeId new_parent,
                const std::string& new_name, unsigned flags);

  // --- files. Handles live until close().
  struct Created {
    Entry entry;
    OpenFile* file = nullptr;
  };
  Result<Created> create(NodeId parent, const std::string& name, mode_t mode, int flags,
                         Maker by = {});
  // A file that no name leads to (O_TMPFILE); link() may give it one while it is open.
  Result<Created> create_unnamed(NodeId parent, mode_t mode, int flags, Maker by = {});
  struct Opened {
    OpenFile* file = nullptr;
    bool keep_cache = false;  // pages cached of this node are those of the present version
  };
  Result<Opened> open_file(NodeId id, int flags);
  // After somebody without a right to set-id bits changed the file.
  void clear_set_ids(OpenFile& file);
  Result<std::size_t> read(OpenFile& file, char* buffer, std::size_t size, off_t offset);
  Result<std::size_t> write(OpenFile& file, std::string_view bytes, off_t offset);
  Status allocate(OpenFile& file, int mode, off_t offset, off_t length);
  Result<std::size_t> copy_range(OpenFile& from, off_t from_offset, OpenFile& to, off_t to_offset,
                                 std::size_t length);
  Result<off_t> seek(OpenFile& file, off_t offset, int whence);
  Status sync(OpenFile& file, bool data_only);
  void close(OpenFile* file);
  // Files of lower of less than this are opened late.
  static constexpr off_t kOpenLateBelow = 64 * 1024;
  // Files that are open without a descriptor get theirs; to be called within milliseconds while
  // there are some. One that was replaced below before that cannot be read any more (ESTALE).
  void open_late();
  bool has_late() const { return !late_.empty(); }

  // --- extended attributes: user.* of files and directories.
  Result<std::string> attribute(NodeId id, const std::string& name);
  Result<std::vector<std::string>> attribute_names(NodeId id);
  // Whether an attribute of that name may be set or removed at all.
  Status may_change_attribute(const std::string& name) const;
  // `flags` as of setxattr(2).
  Status set_attribute(NodeId id, const std::string& name, std::string_view value, int flags);
  Status remove_attribute(NodeId id, const std::string& name);

  // --- copy-up of what is large. begin_copy: null where a copy-up has nothing long to do; else
  // run() the job on any thread and give it back to end_copy, whatever became of it. The next
  // copy-up of the node then uses it.
  std::unique_ptr<CopyJob> begin_copy(NodeId id);
  void end_copy(NodeId id, std::unique_ptr<CopyJob> job);
  // No copy-up of the node is to come any more.
  void forget_copy(NodeId id);
  // Charges what the file holds now: after it was written past the view.
  void account_now(OpenFile& file);
  struct Quota {
    std::uint64_t limit = 0;  // bytes
    std::uint64_t left = 0;
  };
  Quota quota() const;
  // Whether a writable file has another mtime than the attributes that were told last.
  bool changed_since_told(const OpenFile& file) const;
  // The names of a file lead to a new node from now on, with the same number; who has this one open
  // keeps what it sees.
  Status supersede(NodeId id);
  // Whether whoever opens this superseded node is to ask for its name again: by another name of the
  // file, of which the kernel does not know yet. Every second time not: there may be no name to ask
  // for, but a descriptor.
  bool sends_on(NodeId id);

  // --- checkpoints (docs/layer-format.md, "Frozen layers"). In this order, without another call in
  // between but files(): a kill before commit_freeze leaves what was before.
  // EBUSY where something is in the way.
  Status prepare_freeze();
  Status exchange_upper();
  Status commit_freeze(layer::Checkpoint& checkpoint);
  // Everything as before prepare_freeze; not after commit_freeze.
  Status take_back_freeze();
  // Files that are open for writing: what was written through a mapping may wait in the kernel.
  std::vector<NodeId> open_for_writing() const;
  bool lies_in_upper(NodeId id);

  // --- listings
  // The listing is taken by list_again, before the first use of `entries`.
  Result<OpenDir*> open_directory(NodeId id);
  Status list_again(OpenDir& dir);
  void close(OpenDir* dir);
  Status sync_directory(NodeId id);

  struct statvfs statistics() const;
  // Writes pending read records; call at least every Records::kFlushInterval while there are any.
  Status flush_records() { return records_->flush_reads(); }
  // Descriptors of what has to be synced before a file is. Whoever takes them syncs them.
  std::vector<os::UniqueFd> unsynced_logs() {
    return meta_ ? meta_->unsynced_logs() : std::vector<os::UniqueFd>();
  }
  bool has_pending_records() const { return records_->has_unwritten_reads(); }

  bool knows(NodeId id) const { return nodes_.contains(id); }
  const NodeTable& nodes() const { return nodes_; }
  // Up to `max` entries that the other side could forget without loss: files that nobody has open,
  // the oldest first. Each is told once in a round over all nodes.
  struct Idle {
    NodeId parent = 0;
    std::string name;
  };
  std::vector<Idle> idle_entries(std::size_t max);
  // The path of (parent, name), for decisions; empty optional: no such parent any more.
  std::optional<std::string> path_of(NodeId parent, std::string_view name);
  // Every path that leads to the node.
  std::vector<std::string> paths_of(NodeId id);
  bool is_directory(NodeId id);
  // Of an object with one name: the directory that it is in, else 0.
  NodeId directory_of(NodeId id);
  const policy::FsRules& rules() const { return options_.rules; }

 private:
  enum class Data : std::uint8_t { kContent, kNone };
  struct Found {
    Node* node = nullptr;
    struct stat st {};
    // What lies there in upper, before it was made what is shown.
    std::optional<struct stat> upper = {};
    // What lower has there, where it was looked at.
    std::optional<LowerStat> lower = {};
  };
  // A name that is free in the merged view, and where to make it.
  struct Slot {
    DirRef dir;
    std::string path;
    bool whiteout = false;       // device 0:0 lies there
    bool lower_hidden = false;   // lower has an object there: a directory must be opaque
    bool row = false;            // a whiteout row lies there
    std::uint64_t reserved = 0;  // bytes, until the object is there
  };

  Overlay(Options options, Ledger& ledger, Observer& observer);
  Status open_layer();
  Status set_up_root(bool fresh);
  Status open_frozen_layers();
  Status stand_on_frozen(std::uint32_t layer, std::uint64_t new_root_inode);
  void note_frozen(Node& node, std::uint32_t layer);
  Status count_usage();
  Status keep_apart(int lower, int layer);

  // find.cc
  Result<Node*> live(NodeId id);
  Result<Node*> live_directory(NodeId id);
  bool attached(const Node& node) const;
  // What a search that found nothing saw in its place.
  struct Gap {
    bool whiteout = false;  // device 0:0 in upper
    bool row = false;       // a whiteout row
  };
  Result<Found> find(Node& dir, const std::string& name, Gap* gap = nullptr);
  void tell_outside(Node& dir, const std::string& name);
  Result<std::optional<Found>> find_optional(Node& dir, const std::string& name,
                                             Gap* gap = nullptr);
  Result<Found> adopt_upper(Node& dir, const std::string& name, const struct stat& st,
                            const std::string& path);
  Result<Found> adopt_lower(Node& dir, const std::string& name, const LowerStat& lower,
                            const std::string& path);
  void detach(Node& node, Node& dir, const std::string& name);
  std::uint64_t shown_links(const Node& node, std::uint64_t links);
  Result<struct stat> stat_node(Node& node);
  Entry entry_of(Node& node, struct stat st);
  void shape(Node& node, struct stat& st);
  Owner owner_of(const Node& node, const struct stat& disk) const;
  void watch_lower(Node& dir);
  Result<bool> is_opaque_child(int dir_fd, const std::string& name);
  Result<std::optional<LowerStat>> lower_at(Node& dir, const std::string& name);
  Status follow_lower(Node& node, Node& dir, const std::string& name);
  bool has_whiteout_row(Node& dir, const std::string& name) const;

  // frozen.cc
  struct Parts {
    std::vector<std::uint32_t> layers;  // the newest first
    bool cut = false;                   // nothing of lower shows
  };
  Result<const FrozenDirectory*> frozen_names(Node& dir);
  Result<std::optional<LowerStat>> frozen_at(Node& dir, const std::string& name);
  Result<std::optional<LowerStat>> below_at(Node& dir, const std::string& name);
  Result<Parts> parts_of(Node& dir, const std::string& name);
  Result<Found> adopt_frozen(Node& dir, const std::string& name, const LowerStat& frozen,
                             const std::string& path);
  // The directory that holds the first name of a node that is own(), where that lies.
  Result<DirRef> own_dir(Node& node) {
    Node& parent = *node.names.front().parent;
    return node.upper ? dirs_->upper(parent) : dirs_->frozen(parent, node.frozen);
  }
  Result<DirRef> below_dir(Node& parent, std::uint32_t layer);
  static bool is_object_of(const Node& node, const LowerStat& found);
  Status thaw(OpenFile& file);
  Status copy_without_name(Node& node);
  using MakeStaged = std::function<Result<os::UniqueFd>(const std::string& staged)>;
  Status copy_from(Node& node, LowerStat frozen, bool must_link, const MakeStaged& make);
  Result<os::UniqueFd> stage_copy(int from, off_t size, const std::string& staged);
  Status move_handles(Node& node, int copy);

  // copy_up.cc
  Status writable() const;
  Status copy_up(Node& node, Data data = Data::kContent);
  Status copy_up_one(Node& node, Data data);
  Result<os::UniqueFd> stage_file(const LowerStat& lower, int lower_dir, const std::string& name,
                                  const std::string& staged, PendingBase& base, Data data,
                                  std::optional<layer::Version>& copied);
  Status stage_other(const LowerStat& lower, int lower_dir, const std::string& name,
                     const std::string& staged);
  Status place(const std::string& staged, int dir_fd, const std::string& name);
  Status dress(int dir_fd, const std::string& name, const struct stat& like);
  Status copy_up_tree(Node& top);
  std::string staged_name() { return "o" + std::to_string(next_staged_++); }
  Status reserve(std::string_view operation, const std::string& path, std::uint64_t bytes,
                 std::uint64_t entries);

  // extended.cc
  Result<os::UniqueFd> open_for_attributes(Node& node, bool changes);
  void charge_attributes(Node& node, int fd, std::uint64_t before, std::uint64_t reserved);
  Status make_own(Node& node);
  Status copy_attributes_from(int from, const std::string& staged);
  Status copy_attributes(const Node& node, int lower_dir, const std::string& name,
                         const std::string& staged);

  // links.cc
  Status load_links();
  Result<bool> covers_lower(const std::string& path, const LowerIdentity& file);
  bool has_more_names(const LowerStat& below);
  std::uint64_t names_of(const LowerStat& below) const;
  Status renew_copy(const LowerIdentity& origin);
  bool may_share(const LowerStat& lower, const policy::FsDecision& decision) const;
  Result<Found> join_copy(Node& dir, const std::string& name, const LowerStat& lower,
                          const std::string& path);
  Result<struct stat> give_name(Node& dir, const std::string& name, const LowerStat& lower,
                                const std::string& path);
  void give_all_names(Node& node, const LowerIdentity& origin);
  Status record_lower(Node& dir, const std::string& name, const LowerStat& lower,
                      const std::string& path);

  // create.cc
  // `searched`: what a search for the name has just seen in its place; without one it is done.
  Result<Slot> open_slot(std::string_view operation, Node& parent, const std::string& name,
                         std::uint64_t bytes, const Gap* searched = nullptr);
  Status reserve_rows(std::string_view operation, const std::string& path, std::uint64_t rows);
  Result<Entry> settle_new(Node& parent, const std::string& name, Slot& slot, mode_t type,
                           bool owned);
  Status give_to_owner(int dir_fd, const std::string& name, mode_t mode, bool link);
  // What is to be made, and by whom.
  struct Making {
    std::string_view operation;
    mode_t mode = 0;
    std::uint64_t bytes = 0;
    Maker by;
  };
  Result<Entry> make_in_slot(NodeId parent, const std::string& name, const Making& making,
                             const std::function<int(int dir_fd, const char* name)>& make,
                             const Gap* searched = nullptr);
  Result<Maker> maker_in(NodeId parent, Maker by);

  // change.cc
  Status change_unnamed(Node& node, const Changes& changes);
  Status change_owner(Node& node, const Changes& changes);

  // unnamed.cc
  Result<Entry> name_unnamed(Node& node, Node& parent, const std::string& name);

  // remove.cc
  // What every removal begins with: the parent is in upper, what lower has under the name is
  // recorded.
  struct Removal {
    DirRef dir;  // of the parent, in upper
    bool over_lower = false;
    struct stat before {};  // of the upper object, where there is one
  };
  Result<Removal> begin_removal(Node& parent, const std::string& name, const Found& found);
  Status make_whiteout(int dir_fd, const std::string& name);
  Status put_whiteout(Node& parent, int dir_fd, const std::string& name, bool replaces,
                      bool is_directory);
  Status clear_whiteouts(int dir_fd);
  Result<bool> is_empty(Node& dir);
  void gone(Node& node, Node& parent, const std::string& name, const struct stat& upper_before);
  Status mark_opaque(Node& dir);

  // rename.cc
  struct Move;
  Status check_move(Node& top, const std::string& from, const std::string& to);
  Status prepare_move(Move& move);
  Status move_in_upper(Move& move);
  Status finish_move(Move& move);

  // listing.cc
  // Calls `visit` until it says false.
  using VisitEntry = std::function<Result<bool>(ListedEntry&& entry)>;
  Result<bool> visit_frozen(Node& dir, std::unordered_set<std::string>& seen,
                            const VisitEntry& visit);
  Status for_each_raw(Node& dir, const VisitEntry& visit);
  Result<std::vector<ListedEntry>> list_raw(Node& dir);
  Result<os::UniqueFd> open_upper_directory(Node& dir);

  // file_io.cc
  // add_file looks first at what the node's object holds now; keep_file takes it for known.
  Result<OpenFile*> add_file(Node& node, os::UniqueFd fd, bool lower, bool writable);
  OpenFile* keep_file(Node& node, os::UniqueFd fd, bool lower, bool writable);
  OpenFile* keep_late(Node& node, int lower_dir, const std::string& name);
  Status need_descriptor(OpenFile& file);
  // Before a name of the node goes.
  void open_late(Node& node);
  Result<os::UniqueFd> reopen_unlinked(Node& node, int access);
  void account(Node& node, int fd, std::uint64_t reserved);
  void charge_directory(Node& dir);
  Result<std::uint64_t> reserve_write(OpenFile& file, off_t offset, std::uint64_t length,
                                      std::string_view operation);
  Status truncate_fd(Node& node, int fd, off_t size);
  os::UniqueFd shared_fd(Node& node, int access);

  // large_copy.cc
  std::unique_ptr<CopyJob> take_prepared(const Node& node, const LowerStat& lower);
  void drop_prepared(std::unique_ptr<CopyJob> job);

  Options options_;
  Ledger& ledger_;
  Observer& observer_;
  NodeTable nodes_;
  std::optional<layer::MetaStore> meta_;
  std::unique_ptr<Records> records_;
  InodeNumbers numbers_;
  Owners owners_;
  LinkIndex links_;
  std::unique_ptr<DirCache> dirs_;
  FrozenNames frozen_names_;
  std::vector<os::UniqueFd> frozen_roots_;    // readable, the newest first
  std::vector<std::uint32_t> frozen_layers_;  // their numbers
  std::optional<layer::Freeze> freeze_;
  os::UniqueFd work_;
  os::UniqueFd upper_root_;  // readable, for statfs and syncs
  std::set<std::string, std::less<>> whiteout_rows_;
  std::map<OpenFile*, std::unique_ptr<OpenFile>> files_;
  std::unordered_set<OpenFile*> late_;  // open, without a descriptor when they were opened
  std::map<OpenDir*, std::unique_ptr<OpenDir>> listings_;
  std::size_t listed_bytes_ = 0;
  NodeId prune_hand_ = kRootId;
  std::map<NodeId, std::unique_ptr<CopyJob>> prepared_;
  std::uint64_t next_staged_ = 0;
  layer::MarkNamespace marks_ = layer::MarkNamespace::kUser;
  bool gives_away_ = false;  // runs as root for another owner: new objects are chowned
  bool privileged_ = false;  // permission bits do not bind us
};

}  // namespace cofferdam::overlay
