// RecordLog: `meta-records`, the bases and reads of a layer, and the content of bases.
//
// Only appended to, one write(2) per record or batch: what was added is with the kernel before the
// call returns, whatever becomes of the process. A record that a lost power or a kill cut off ends
// the log: it and what follows it never were. The first record of a path stays. One writer; readers
// may open it at any time and see a prefix. docs/layer-format.md has the form. Not thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/layer/path_index.h"
#include "common/layer/records.h"
#include "common/os/unique_fd.h"

namespace cofferdam::layer {

class RecordLog final {
 public:
  // Creates it where it is missing, and cuts off a record that is not whole.
  static Result<RecordLog> open(const std::filesystem::path& file);
  // Changes nothing. A missing log is empty.
  static Result<RecordLog> open_for_reading(const std::filesystem::path& file);

  // Whether it was the first of its path. `content` is kept when `record.stored`.
  Result<bool> add_base(const BaseRecord& record, std::string_view content);
  Status add_read(const ReadRecord& record);
  // Until end_batch(), what is added may wait for the rest.
  void begin_batch() { batching_ = true; }
  Status end_batch();

  Result<std::optional<BaseRecord>> base(std::string_view path);
  Result<std::optional<ReadRecord>> read(std::string_view path);
  // The content that was kept; none where it is not what was hashed.
  Result<std::optional<std::string>> content(std::string_view path);
  // Ordered by path bytes. `prefix`: itself and what lies below it, "" = all.
  Status for_each_base(std::string_view prefix,
                       const std::function<Status(const BaseRecord&)>& visit);
  Status for_each_read(const std::function<Status(const ReadRecord&)>& visit);

  // What there is now, in a new file.
  Status copy_to(const std::filesystem::path& file);

  std::uint64_t bases() const { return bases_; }
  std::uint64_t stored_bytes() const { return stored_bytes_; }
  // To be synced before what depends on the records; invalid when nothing was added since.
  os::UniqueFd unsynced();

 private:
  enum class Kind : std::uint8_t { kBase = 'B', kRead = 'R' };
  // Where the records of the log are, as a search or a walk finds them.
  struct Frame {
    Kind kind = Kind::kBase;
    BaseRecord record;
    std::uint64_t content_at = 0;  // offset in the file
    std::uint64_t content_size = 0;
    std::uint64_t end = 0;
  };

  RecordLog(std::filesystem::path file, os::UniqueFd fd, bool writing)
      : file_(std::move(file)), fd_(std::move(fd)), writing_(writing) {}
  Status load();
  // Takes in what was added since.
  Status load_more();
  // For readers: a writer may have gone on.
  Status catch_up();
  // The frame at `at`; none: it is not whole.
  Result<std::optional<Frame>> frame_at(std::uint64_t at) const;
  Result<std::string> bytes_at(std::uint64_t at, std::size_t size) const;
  Result<std::optional<Frame>> find(Kind kind, std::string_view path);
  Status append(Kind kind, const BaseRecord& record, std::string_view content);
  Status flush();
  Status for_each(Kind kind, std::string_view prefix,
                  const std::function<Status(const BaseRecord&)>& visit);

  std::filesystem::path file_;
  os::UniqueFd fd_;
  bool writing_ = false;
  bool batching_ = false;
  bool unsynced_ = true;
  std::string waiting_;    // frames of the batch, which follow what is written
  std::uint64_t end_ = 0;  // of what is written
  std::uint64_t bases_ = 0;
  std::uint64_t stored_bytes_ = 0;
  PathIndex index_;
};

}  // namespace cofferdam::layer
