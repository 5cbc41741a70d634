// The name of a git object: SHA-1 of "<type> <size>\0" and the content. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace cofferdam::orchestrator::reader {

enum class ObjectType : std::uint8_t { kCommit = 1, kTree = 2, kBlob = 3, kTag = 4 };
std::string_view to_text(ObjectType type);
std::optional<ObjectType> type_from_text(std::string_view text);

struct ObjectId {
  static constexpr std::size_t kSize = 20;
  std::array<std::uint8_t, kSize> bytes{};

  auto operator<=>(const ObjectId&) const = default;
  bool is_null() const { return *this == ObjectId{}; }
  std::string_view raw() const {
    return {reinterpret_cast<const char*>(bytes.data()), kSize};  // NOLINT: bytes as text
  }
};

// Well distributed already.
struct ObjectIdHash {
  std::size_t operator()(const ObjectId& id) const {
    std::size_t value = 0;
    std::memcpy(&value, id.bytes.data(), sizeof value);
    return value;
  }
};
using ObjectIdSet = std::unordered_set<ObjectId, ObjectIdHash>;

// Exactly 40 lower-case hexadecimal digits, and back.
std::optional<ObjectId> id_from_hex(std::string_view hex);
std::string to_hex(const ObjectId& id);
// Exactly 20 bytes.
std::optional<ObjectId> id_from_raw(std::string_view raw);
std::vector<ObjectId> ids_from_raw(std::string_view raw);  // a multiple of 20 bytes, else empty

ObjectId id_of(ObjectType type, std::string_view content);

}  // namespace cofferdam::orchestrator::reader
