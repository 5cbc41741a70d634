// What a sandbox may leave in its git directory: read without a fault, and what is accepted holds
// what the reader promises. The first byte chooses the parser.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/reader/delta.h"
#include "orchestrator/reader/object_check.h"
#include "orchestrator/reader/pack.h"
#include "orchestrator/reader/refs.h"
#include "orchestrator/reader/walk.h"

namespace reader = cofferdam::orchestrator::reader;
namespace changes = cofferdam::orchestrator::changes;

namespace {

constexpr std::uint64_t kLimit = 1U << 20U;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check_tree(std::string_view bytes) {
  const auto entries = reader::check_tree(bytes);
  if (!entries.ok()) return;
  std::string again;
  std::set<std::string_view> names;
  for (const auto& entry : *entries) {
    require(!entry.name.empty() && entry.name != "." && entry.name != "..");
    require(entry.name.find('/') == std::string_view::npos && !changes::is_dot_git(entry.name));
    require(names.insert(entry.name).second && !entry.id.is_null());
    again += std::string(entry.mode_text) + " " + std::string(entry.name);
    again += '\0';
    again += entry.id.raw();
  }
  require(again == bytes);
}

void check_commit(std::string_view bytes) {
  const auto links = reader::check_commit(bytes);
  if (!links.ok()) return;
  require(bytes.find('\0') == std::string_view::npos && !links->tree.is_null());
  std::string head = "tree " + reader::to_hex(links->tree) + "\n";
  for (const auto& parent : links->parents) head += "parent " + reader::to_hex(parent) + "\n";
  require(bytes.starts_with(head) && bytes.substr(head.size()).starts_with("author "));
}

void check_refs(std::string_view bytes) {
  const auto value = reader::parse_ref_file(bytes);
  if (value.ok()) require(value->id.has_value() || reader::is_branch_name(value->branch));
  const auto packed = reader::parse_packed_refs(bytes);
  if (!packed.ok()) return;
  for (const auto& branch : packed->branches) {
    require(reader::is_branch_name(branch.name) && branch.name.find("..") == std::string::npos);
    require(branch.name[0] != '-' && branch.name[0] != '/' && branch.name.back() != '/');
  }
}

void check_delta(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::size_t base =
      std::min<std::size_t>(static_cast<unsigned char>(bytes[0]), bytes.size() - 1);
  const auto made = reader::apply_delta(bytes.substr(1, base), bytes.substr(1 + base), kLimit);
  if (made.ok()) require(made->size() <= kLimit);
}

// An index and a pack, cut where the first two bytes say.
void check_pack(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const std::size_t cut = std::min<std::size_t>(
      static_cast<unsigned char>(bytes[0]) * 256U + static_cast<unsigned char>(bytes[1]),
      bytes.size() - 2);
  auto index = reader::PackIndex::parse(std::string(bytes.substr(2, cut)));
  if (!index.ok()) return;
  const std::size_t count = std::min<std::size_t>(index->count(), 64);
  std::vector<reader::ObjectId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(index->id_at(i));
  reader::Pack pack(std::move(index).value(), reader::source_of_bytes(bytes.substr(2 + cut)),
                    kLimit);
  for (const auto& id : ids) {
    const auto object = pack.read(id);
    if (object.ok()) require(object->content.size() <= kLimit);
  }
}

void check_loose(std::string_view bytes) {
  const auto object = reader::read_loose_object(reader::source_of_bytes(bytes), kLimit);
  if (object.ok()) require(object->content.size() <= kLimit);
}

// A sandbox whose one loose object, whatever is asked for, is this: nothing is ever given that does
// not have its name.
class OneObject final : public reader::ObjectHost {
 public:
  explicit OneObject(std::string_view bytes) : bytes_(bytes) {}
  cofferdam::Result<std::vector<bool>> missing(const std::vector<reader::ObjectId>& ids) override {
    return std::vector<bool>(ids.size(), true);
  }
  cofferdam::Result<std::optional<reader::LooseObject>> loose(const reader::ObjectId&) override {
    auto object = reader::read_loose_object(reader::source_of_bytes(bytes_), kLimit);
    if (!object.ok()) return object.error();
    return std::optional<reader::LooseObject>(std::move(object).value());
  }
  cofferdam::Status give(reader::ObjectType type, const reader::ObjectId& id,
                         std::string_view content) override {
    require(reader::id_of(type, content) == id);
    return {};
  }

 private:
  std::string_view bytes_;
};

void check_walk(std::string_view bytes) {
  const auto object = reader::read_loose_object(reader::source_of_bytes(bytes), kLimit);
  const auto type = object.ok() ? reader::type_from_text(object->type) : std::nullopt;
  OneObject host(bytes);
  std::vector<reader::Pack> packs;
  reader::Walk walk(host, packs);
  (void)walk.take(type ? reader::id_of(*type, object->content) : reader::ObjectId{}).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 7) {
    case 0:
      check_tree(bytes);
      break;
    case 1:
      check_commit(bytes);
      break;
    case 2:
      check_refs(bytes);
      break;
    case 3:
      check_delta(bytes);
      break;
    case 4:
      check_pack(bytes);
      break;
    case 5:
      check_loose(bytes);
      break;
    default:
      check_walk(bytes);
  }
  return 0;
}
