// Pack files of version 2 with an index of version 2 (gitformat-pack(5)), taken for hostile.
//
// Read by descriptor, never mapped. Deltas are followed inside the one pack only, as git keeps them
// on disk.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/result.h"
#include "orchestrator/reader/inflate.h"
#include "orchestrator/reader/object_id.h"

namespace cofferdam::orchestrator::reader {

// The whole index in memory, its tables' sizes checked against each other. Pure.
class PackIndex final {
 public:
  static Result<PackIndex> parse(std::string bytes);

  std::size_t count() const { return count_; }
  std::optional<std::uint64_t> offset_of(const ObjectId& id) const;
  ObjectId id_at(std::size_t position) const;

 private:
  std::uint32_t number_at(std::size_t at) const;

  std::string bytes_;
  std::size_t count_ = 0;
  std::size_t large_ = 0;  // entries of the table of 64-bit offsets
};

struct PackedObject {
  ObjectType type = ObjectType::kBlob;
  std::string content;
};

// Contents that deltas were applied to, the least used dropped first.
class BaseCache final {
 public:
  const PackedObject* find(std::uint64_t offset);
  void keep(std::uint64_t offset, const PackedObject& object);

 private:
  static constexpr std::size_t kMaxBytes = 64U << 20U;
  struct Entry {
    std::uint64_t offset = 0;
    PackedObject object;
  };
  std::list<Entry> entries_;  // the newest first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> by_offset_;
  std::size_t bytes_ = 0;
};

class Pack final {
 public:
  // `bytes`: of the pack file. `limit` bounds every object, and the deltas of a chain together.
  Pack(PackIndex index, ByteSource bytes, std::uint64_t limit)
      : index_(std::move(index)), bytes_(std::move(bytes)), limit_(limit) {}

  bool holds(const ObjectId& id) const { return index_.offset_of(id).has_value(); }
  Result<PackedObject> read(const ObjectId& id);

 private:
  struct Header {
    unsigned type = 0;  // 1..4, 6, 7
    std::uint64_t size = 0;
    std::uint64_t base = 0;  // offset, of a delta
    std::uint64_t data = 0;  // where the stream begins
  };
  Result<Header> header_at(std::uint64_t offset) const;

  PackIndex index_;
  ByteSource bytes_;
  std::uint64_t limit_;
  BaseCache cache_;
};

}  // namespace cofferdam::orchestrator::reader
