// PackWriter: objects into one pack with its index (gitformat-pack(5), version 2), which appears in
// a repository as a whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "orchestrator/reader/object_id.h"

namespace cofferdam::orchestrator::changes {

class PackWriter final {
 public:
  // Writes into a file in `directory` that has a name only once finish() gives it one; git's own
  // housekeeping removes what a power cut leaves.
  static Result<PackWriter> begin(const std::filesystem::path& directory);
  PackWriter(PackWriter&&) = default;
  PackWriter& operator=(PackWriter&&) = delete;
  ~PackWriter();

  // Each object once.
  Status add(reader::ObjectType type, const reader::ObjectId& id, std::string_view content);
  std::size_t count() const { return entries_.size(); }
  // Durable, and then visible: pack first, index second. Only the objects in `wanted`; nothing
  // where there are none.
  Status finish(const reader::ObjectIdSet& wanted);

 private:
  struct Entry {
    reader::ObjectId id;
    std::uint32_t checksum = 0;
    std::uint64_t offset = 0;
  };
  PackWriter(std::filesystem::path directory, std::filesystem::path temporary, os::UniqueFd fd)
      : directory_(std::move(directory)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}
  Status write(std::string_view bytes);
  Status drop_all_but(const reader::ObjectIdSet& wanted);
  Result<std::string> complete_pack();
  std::string index(std::string_view pack_checksum);

  std::filesystem::path directory_;
  std::filesystem::path temporary_;
  os::UniqueFd fd_;
  std::vector<Entry> entries_;
  std::uint64_t size_ = 0;
};

}  // namespace cofferdam::orchestrator::changes
