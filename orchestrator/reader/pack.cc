#include "orchestrator/reader/pack.h"

#include <vector>

#include "orchestrator/reader/delta.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::size_t kIndexHeader = 8;
constexpr std::size_t kFanOut = 256 * 4;
constexpr std::size_t kTrailer = 2 * ObjectId::kSize;
constexpr std::size_t kMaxEntryHeader = 64;
constexpr std::size_t kMaxChain = 4096;
constexpr unsigned kOffsetDelta = 6;
constexpr unsigned kReferenceDelta = 7;

unsigned byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

}  // namespace

std::uint32_t PackIndex::number_at(std::size_t at) const {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = (value << 8U) | byte_at(bytes_, at + i);
  return value;
}

Result<PackIndex> PackIndex::parse(std::string bytes) {
  PackIndex index;
  index.bytes_ = std::move(bytes);
  constexpr std::size_t kLeast = kIndexHeader + kFanOut + kTrailer;
  if (index.bytes_.size() < kLeast ||
      !std::string_view(index.bytes_).starts_with(std::string_view("\xfftOc\0\0\0\2", 8))) {
    return Error("a pack index of an unknown version");
  }
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint32_t next = index.number_at(kIndexHeader + 4 * i);
    if (next < last) return Error("a pack index whose table of contents is broken");
    last = next;
  }
  index.count_ = last;
  // Per object: its name, a checksum, an offset; then the large offsets.
  const std::size_t rest = index.bytes_.size() - kLeast;
  constexpr std::size_t kPerObject = ObjectId::kSize + 8;
  if (rest / kPerObject < index.count_ || (rest - index.count_ * kPerObject) % 8 != 0) {
    return Error("a pack index whose size does not fit");
  }
  index.large_ = (rest - index.count_ * kPerObject) / 8;
  return index;
}

ObjectId PackIndex::id_at(std::size_t position) const {
  return *id_from_raw(std::string_view(bytes_).substr(
      kIndexHeader + kFanOut + position * ObjectId::kSize, ObjectId::kSize));
}

std::optional<std::uint64_t> PackIndex::offset_of(const ObjectId& id) const {
  const std::size_t first = id.bytes[0];
  std::size_t low = first == 0 ? 0 : number_at(kIndexHeader + 4 * (first - 1));
  std::size_t high = number_at(kIndexHeader + 4 * first);
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (id_at(middle) < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low >= count_ || id_at(low) != id) return std::nullopt;
  const std::size_t offsets = kIndexHeader + kFanOut + count_ * (ObjectId::kSize + 4);
  const std::uint32_t offset = number_at(offsets + 4 * low);
  if ((offset & 0x80000000U) == 0) return offset;
  const std::size_t which = offset & 0x7fffffffU;
  if (which >= large_) return std::nullopt;
  const std::size_t at = offsets + 4 * count_ + 8 * which;
  return (static_cast<std::uint64_t>(number_at(at)) << 32U) | number_at(at + 4);
}

const PackedObject* BaseCache::find(std::uint64_t offset) {
  const auto found = by_offset_.find(offset);
  if (found == by_offset_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &entries_.front().object;
}

void BaseCache::keep(std::uint64_t offset, const PackedObject& object) {
  if (object.content.size() > kMaxBytes / 2 || by_offset_.contains(offset)) return;
  entries_.push_front({offset, object});
  by_offset_[offset] = entries_.begin();
  bytes_ += object.content.size();
  while (bytes_ > kMaxBytes) {
    bytes_ -= entries_.back().object.content.size();
    by_offset_.erase(entries_.back().offset);
    entries_.pop_back();
  }
}

Result<Pack::Header> Pack::header_at(std::uint64_t offset) const {
  TRY_ASSIGN(const std::string bytes, bytes_(offset, kMaxEntryHeader));
  Header header;
  std::size_t at = 0;
  const Error broken("a pack entry with a broken header");
  if (bytes.empty()) return broken;
  unsigned byte = byte_at(bytes, at++);
  header.type = (byte >> 4U) & 7U;
  header.size = byte & 15U;
  for (unsigned shift = 4; (byte & 0x80U) != 0; shift += 7) {
    if (at >= bytes.size() || shift > 56) return broken;
    byte = byte_at(bytes, at++);
    header.size |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
  }
  if (header.type == kOffsetDelta) {
    std::uint64_t back = 0;
    for (int i = 0;; ++i) {
      if (at >= bytes.size() || i > 8) return broken;
      byte = byte_at(bytes, at++);
      if (i > 0) ++back;
      back = (back << 7U) | (byte & 0x7fU);
      if ((byte & 0x80U) == 0) break;
    }
    if (back == 0 || back >= offset) return Error("a delta whose base lies outside its pack");
    header.base = offset - back;
  } else if (header.type == kReferenceDelta) {
    if (bytes.size() - at < ObjectId::kSize) return broken;
    const auto base =
        index_.offset_of(*id_from_raw(std::string_view(bytes).substr(at, ObjectId::kSize)));
    if (!base) return Error("a delta whose base is not in its pack");
    header.base = *base;
    at += ObjectId::kSize;
  } else if (header.type < 1 || header.type > 4) {
    return Error("a pack entry of an unknown type");
  }
  if (header.size > limit_) {
    return Error("an object of " + std::to_string(header.size) + " bytes, too large");
  }
  header.data = offset + at;
  return header;
}

Result<PackedObject> Pack::read(const ObjectId& id) {
  const auto offset = index_.offset_of(id);
  if (!offset) return Error("not in this pack");
  struct Link {
    std::uint64_t offset = 0;
    std::string delta;
  };
  std::vector<Link> chain;
  std::uint64_t held = 0;
  std::uint64_t at = *offset;
  PackedObject object;
  while (true) {
    if (const PackedObject* known = cache_.find(at); known != nullptr) {
      object = *known;
      break;
    }
    TRY_ASSIGN(const Header header, header_at(at));
    held += header.size;
    if (held > limit_) return Error("a chain of deltas that is too large");
    TRY_ASSIGN(std::string bytes, inflate_exactly(bytes_, header.data, header.size));
    if (header.type < kOffsetDelta) {
      object.type = static_cast<ObjectType>(header.type);
      object.content = std::move(bytes);
      break;
    }
    if (chain.size() == kMaxChain) return Error("a chain of deltas without an end");
    chain.push_back({at, std::move(bytes)});
    at = header.base;
  }
  if (!chain.empty()) cache_.keep(at, object);
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    TRY_ASSIGN(object.content, apply_delta(object.content, link->delta, limit_));
    if (std::next(link) != chain.rend()) cache_.keep(link->offset, object);
  }
  return object;
}

}  // namespace cofferdam::orchestrator::reader
