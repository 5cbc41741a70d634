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
#include "fsproxy/overlay/ledger.h"
#include "fsproxy/overlay/lower_tree.h"

namespace cofferdam::overlay {

// A base that has been taken but not yet written down.
struct PendingBase {
  layer::BaseRecord record;
  // The bytes of a file of at most Records::kStoreLimit, or a link's text.
  std::optional<std::string> content;
  bool already_recorded = false;
};

// Content that is kept counts in the ledger. Where the quota or the disk has no room, only its hash
// is: that is what a merge then has.
class Records final {
 public:
  // Content up to this size is kept, larger content is only hashed.
  static constexpr std::uint64_t kStoreLimit = 4ULL << 20U;
  static constexpr std::int64_t kTicksNs = 8'000'000;  // two clock ticks
  static constexpr std::chrono::milliseconds kFlushInterval{200};

  // `meta` null: nothing is recorded. Both must outlive this.
  Records(layer::MetaStore* meta, Ledger& ledger) : meta_(meta), ledger_(&ledger) {}

  bool active() const { return meta_ != nullptr; }
  // Base rows, also those of names that are gone again.
  std::uint64_t rows() const { return meta_ == nullptr ? 0 : meta_->base_rows(); }

  // The first version that was read; written within kFlushInterval, or before a base of the path.
  void note_read(std::string path, const layer::Version& version);
  Status flush_reads();
  bool has_unwritten_reads() const { return !reads_.empty(); }

  // Takes the base of the lower object (dir, name), which `now` is the state of: content, hash.
  // `content` stays empty when the path has a record already. `known`: the hash of a version that
  // was read already.
  struct Hashed {
    layer::Version version;
    Sha256Digest sha256{};
  };
  Result<PendingBase> take(std::string path, int dir_fd, const std::string& name,
                           const LowerStat& now, const Hashed* known = nullptr);
  // Writes it down unless the path has a record. `now`: the lower object as it is after the copy.
  Status write(PendingBase& base, const std::optional<layer::Version>& now);
  // take and write in one.
  Status record(const std::string& path, int dir_fd, const std::string& name, const LowerStat& now);
  Status record_absent(const std::string& path);

  // What comes between may be written together.
  Status begin();
  Status commit();

 private:
  Status insert(PendingBase& base);
  Status take_content(PendingBase& base, int dir_fd, const std::string& name, LowerStat& st);
  Result<layer::BaseState> state_of(const std::string& path, const layer::Version& version,
                                    layer::BaseRecord& record);

  layer::MetaStore* meta_;
  Ledger* ledger_;
  std::unordered_map<std::string, layer::Version> reads_;
  bool in_batch_ = false;
};

}  // namespace cofferdam::overlay
