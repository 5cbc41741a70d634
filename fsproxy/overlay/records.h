// Records: what the workload read, and the base of everything that it changes
// (docs/layer-format.md).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"
#include "fsproxy/overlay/lower_tree.h"

namespace cofferdam::overlay {

// A base that has been taken but not yet written down.
struct PendingBase {
  layer::BaseRecord record;
  // The bytes of a file of at most Records::kStoreLimit.
  std::optional<std::string> content;
  bool already_recorded = false;
};

class Records final {
 public:
  // Content up to this size is kept, larger content is only hashed.
  static constexpr std::uint64_t kStoreLimit = 4ULL << 20U;
  static constexpr std::int64_t kTicksNs = 8'000'000;  // two clock ticks
  static constexpr std::chrono::milliseconds kFlushInterval{200};

  // `meta` null: nothing is recorded. `base_dir` is the open `base/` directory.
  Records(layer::MetaStore* meta, os::UniqueFd base_dir);

  bool active() const { return meta_ != nullptr; }
  // Base rows written since the start, also those of names that are gone again.
  std::uint64_t written() const { return written_; }

  // The first version that was read; written within kFlushInterval, or before a base of the path.
  void note_read(std::string path, const layer::Version& version);
  Status flush_reads();
  bool has_unwritten_reads() const { return !reads_.empty(); }

  // Takes the base of the lower object (dir, name) now: stat, content, hash. With `dir_fd` < 0
  // lower has nothing there. `content` stays empty when the path has a record already.
  Result<PendingBase> take(std::string path, int dir_fd, const std::string& name);
  // Writes it down unless the path has a record. `now`: the lower object as it is after the copy.
  Status write(PendingBase& base, const std::optional<layer::Version>& now);
  // take and write in one.
  Status record(const std::string& path, int dir_fd, const std::string& name);
  Status record_absent(const std::string& path);

  // One transaction for the records of a tree.
  Status begin();
  Status commit();

 private:
  Status take_content(PendingBase& base, int dir_fd, const std::string& name, LowerStat& st);
  Status store(const Sha256Digest& digest, std::string_view content);
  Result<layer::BaseState> state_of(const std::string& path, const layer::Version& version,
                                    layer::BaseRecord& record);

  layer::MetaStore* meta_;
  os::UniqueFd base_dir_;
  std::unordered_map<std::string, layer::Version> reads_;
  std::uint64_t next_temporary_ = 0;
  bool in_batch_ = false;
  std::uint64_t written_ = 0;
};

}  // namespace cofferdam::overlay
