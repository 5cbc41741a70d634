// The FUSE operations of one mount: each asks the guard, calls the overlay and replies.
#pragma once

#include <atomic>
#include <set>
#include <vector>

#include "fsproxy/fuse/copy_queue.h"
#include "fsproxy/fuse/listings.h"
#include "fsproxy/fuse/passthrough.h"
#include "fsproxy/fuse/reply.h"
#include "fsproxy/fuse/write_meter.h"
#include "fsproxy/guard/guard.h"

namespace cofferdam::fsproxy {

// What the kernel has open.
struct Handle {
  overlay::OpenFile* file = nullptr;
  bool passthrough = false;
};

// What an operation works with: the session's user data, used by the mount's thread only.
struct MountState {
  overlay::Overlay& view;
  Guard& guard;
  SlowWork& slow;
  CopyQueue& copies;
  Passthrough& passthrough;
  WriteMeter& meter;
  Listings& listings;
  // How long the last fsync took, microseconds. Any thread.
  std::atomic<std::int64_t> sync_us{1'000'000};
  // What the kernel is to forget, told in batches by another thread: now, and in a while.
  std::vector<overlay::Stale> stale = {};
  std::vector<overlay::Stale> expiring = {};
  // Files that are written past this service: what they hold is charged again and again.
  std::set<Handle*> writers = {};
  // Whether more of them may begin. Any thread.
  std::atomic<bool> writers_allowed{true};
};

// For fuse_session_new; lives as long as the process. `attributes`: with the extended ones.
const struct fuse_lowlevel_ops& mount_operations(bool attributes);

// The parts of the table.
void add_name_operations(struct fuse_lowlevel_ops& ops);
void add_file_operations(struct fuse_lowlevel_ops& ops);
void add_open_operations(struct fuse_lowlevel_ops& ops);
void add_attribute_operations(struct fuse_lowlevel_ops& ops);
void add_directory_operations(struct fuse_lowlevel_ops& ops);

inline MountState& state_of(fuse_req_t req) {
  return *static_cast<MountState*>(fuse_req_userdata(req));
}

// Who asks, by the ids of the mount's user namespace.
inline overlay::Owner caller_of(fuse_req_t req) {
  const struct fuse_ctx* caller = fuse_req_ctx(req);
  return {caller->uid, caller->gid};
}

inline overlay::OpenFile& file_of(const struct fuse_file_info* fi) {
  return *reinterpret_cast<Handle*>(fi->fh)->file;
}

// The file was read, so that the kernel no longer believes its attributes.
void note_read(MountState& mount, fuse_ino_t ino);

// Every path of the node may change; else the refusal.
Status check_node(MountState& mount, std::string_view act, fuse_ino_t ino);

}  // namespace cofferdam::fsproxy
