#include "orchestrator/reader/object_id.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "common/base/check.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"commit", "tree", "blob", "tag"};

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string_view to_text(ObjectType type) {
  return kTypes[static_cast<std::size_t>(type) - 1];
}

std::optional<ObjectType> type_from_text(std::string_view text) {
  const auto* const found = std::find(kTypes.begin(), kTypes.end(), text);
  if (found == kTypes.end()) return std::nullopt;
  return static_cast<ObjectType>(found - kTypes.begin() + 1);
}

std::optional<ObjectId> id_from_hex(std::string_view hex) {
  if (hex.size() != 2 * ObjectId::kSize) return std::nullopt;
  ObjectId id;
  for (std::size_t i = 0; i < ObjectId::kSize; ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    id.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return id;
}

std::string to_hex(const ObjectId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * ObjectId::kSize);
  for (const std::uint8_t byte : id.bytes) {
    hex += kDigits[byte >> 4U];
    hex += kDigits[byte & 15U];
  }
  return hex;
}

std::optional<ObjectId> id_from_raw(std::string_view raw) {
  if (raw.size() != ObjectId::kSize) return std::nullopt;
  ObjectId id;
  std::memcpy(id.bytes.data(), raw.data(), ObjectId::kSize);
  return id;
}

std::vector<ObjectId> ids_from_raw(std::string_view raw) {
  std::vector<ObjectId> ids;
  if (raw.size() % ObjectId::kSize != 0) return ids;
  ids.reserve(raw.size() / ObjectId::kSize);
  for (; !raw.empty(); raw.remove_prefix(ObjectId::kSize)) {
    ids.push_back(*id_from_raw(raw.substr(0, ObjectId::kSize)));
  }
  return ids;
}

ObjectId id_of(ObjectType type, std::string_view content) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  std::string header = std::string(to_text(type)) + " " + std::to_string(content.size());
  header += '\0';
  ObjectId id;
  unsigned int length = 0;
  CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) == 1);
  CHECK(EVP_DigestUpdate(context.get(), header.data(), header.size()) == 1);
  CHECK(EVP_DigestUpdate(context.get(), content.data(), content.size()) == 1);
  CHECK(EVP_DigestFinal_ex(context.get(), id.bytes.data(), &length) == 1);
  CHECK(length == ObjectId::kSize);
  return id;
}

}  // namespace cofferdam::orchestrator::reader
