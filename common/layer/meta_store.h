// MetaStore: `meta`, the authoritative record beside an upper layer (SQLite, WAL), and the log of
// bases and reads beside it, `meta-records`.
//
// What xattrs cannot hold: the identity of each lower object when the sandbox first touched it
// (the base), what was read, whiteouts where the file system refuses device 0:0, inode numbers of
// copied-up objects. docs/layer-format.md has the tables. fsproxy is the only writer while a
// sandbox runs; export and merge read. Paths are relative to the layer's root, bytes, without a
// leading slash; the root itself is "". Not thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layer/records.h"
#include "common/os/unique_fd.h"

struct sqlite3;

namespace cofferdam::layer {

// A lower file with several names that was copied up or lost a name (docs/layer-format.md).
struct LinkGroupRecord {
  std::uint64_t inode = 0;
  std::int64_t birth_ns = 0;
  std::uint64_t names = 0;  // that lower has
  std::uint64_t upper = 0;  // inode of the copy; 0: there is none
};

class MetaStore final {
 public:
  // Opens or creates `meta` for writing; `start_ns` (wall clock, since the epoch) is kept from the
  // first opening. An unknown format is an error.
  static Result<MetaStore> open(const std::filesystem::path& file, std::int64_t start_ns);
  // For export and merge: no row is changed. Works after the writer was killed.
  static Result<MetaStore> open_for_reading(const std::filesystem::path& file);

  MetaStore(MetaStore&&) noexcept;
  MetaStore& operator=(MetaStore&&) noexcept;
  ~MetaStore();

  std::int64_t start_ns() const;

  // --- base: the first record of a path stays.
  // Whether it was the first. `content`: of a file or a link, kept when `record.stored`.
  Result<bool> record_base(const BaseRecord& record, std::string_view content = {});
  std::uint64_t base_rows() const;
  // Bytes of content that are kept.
  std::uint64_t stored_bytes() const;
  // The content that was kept of a path's base; none where there is none, or not what was hashed.
  Result<std::optional<std::string>> base_content(std::string_view path) const;
  Result<std::optional<BaseRecord>> base(std::string_view path) const;
  // Every record at or below `prefix` ("" = all), ordered by path bytes.
  Status for_each_base(std::string_view prefix,
                       const std::function<Status(const BaseRecord&)>& visit) const;

  // --- reads: the first record of a path stays.
  Status record_read(const ReadRecord& record);
  Result<std::optional<ReadRecord>> read(std::string_view path) const;
  Status for_each_read(const std::function<Status(const ReadRecord&)>& visit) const;

  // --- whiteouts that the upper file system could not hold as device 0:0.
  Status add_whiteout(std::string_view path);
  Status remove_whiteout(std::string_view path);
  Result<std::vector<std::string>> whiteouts() const;

  // --- inode numbers shown for upper objects that came from lower: upper inode -> shown inode.
  Status set_shown_inode(std::uint64_t upper_inode, std::uint64_t shown_inode);
  Status forget_shown_inode(std::uint64_t upper_inode);
  Status for_each_shown_inode(
      const std::function<void(std::uint64_t upper, std::uint64_t shown)>& visit) const;

  // --- owners of objects that do not look as they do on disk: inode in the layers -> ids inside.
  Status set_owner(std::uint64_t inode, std::uint32_t uid, std::uint32_t gid);
  Status forget_owner(std::uint64_t inode);
  using VisitOwner = std::function<void(std::uint64_t inode, std::uint32_t uid, std::uint32_t gid)>;
  Status for_each_owner(const VisitOwner& visit) const;
  // What one of them has, the other has, too.
  Status copy_owner(std::uint64_t from, std::uint64_t to);

  // --- lower files with several names, and which of the names lower shows no more.
  Status set_link_group(const LinkGroupRecord& group);
  // With all its names.
  Status forget_link_group(std::uint64_t inode, std::int64_t birth_ns);
  Status add_link_name(std::string_view path, std::uint64_t inode, std::int64_t birth_ns);
  Status remove_link_name(std::string_view path, std::uint64_t inode, std::int64_t birth_ns);
  Status for_each_link_group(const std::function<void(const LinkGroupRecord&)>& visit) const;
  Status for_each_link_name(const std::function<void(std::string path, std::uint64_t inode,
                                                     std::int64_t birth_ns)>& visit) const;

  // What was written so far survives a loss of power. Costs nothing when nothing was.
  Status sync();
  // The files to sync for that, for another thread to do; none when nothing was written.
  std::vector<os::UniqueFd> unsynced_logs();

  // Bases and reads between the two may be written together, by commit() at the latest; nesting is
  // an error.
  Status begin();
  Status commit();

  // A copy of all of it, records included, in a new file; also while somebody writes.
  Status copy_to(const std::filesystem::path& file) const;

  // For the tables that other files of this folder keep; only what they wrote so is not known to
  // sync(), but to sync_always().
  sqlite3* database() const;
  Status sync_always();

 private:
  struct Impl;
  explicit MetaStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cofferdam::layer
