#include "orchestrator/reader/delta.h"

#include <optional>

namespace cofferdam::orchestrator::reader {
namespace {

class Instructions final {
 public:
  explicit Instructions(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::optional<unsigned> byte() {
    if (bytes_.empty()) return std::nullopt;
    const unsigned value = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value;
  }
  // Seven bits a byte, the lowest first.
  std::optional<std::uint64_t> size() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
      const auto next = byte();
      if (!next) return std::nullopt;
      value |= static_cast<std::uint64_t>(*next & 0x7fU) << shift;
      if ((*next & 0x80U) == 0) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string_view> take(std::size_t count) {
    if (bytes_.size() < count) return std::nullopt;
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  // The bytes of an offset or a size that `which` says are there, from bit `first` on.
  std::optional<std::uint64_t> parts(unsigned which, unsigned first, unsigned count) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < count; ++i) {
      if ((which & (1U << (first + i))) == 0) continue;
      const auto next = byte();
      if (!next) return std::nullopt;
      value |= static_cast<std::uint64_t>(*next) << (8 * i);
    }
    return value;
  }

 private:
  std::string_view bytes_;
};

const Error& cut_short() {
  static const Error kError("a delta that is cut short");
  return kError;
}

}  // namespace

Result<std::string> apply_delta(std::string_view base, std::string_view delta,
                                std::uint64_t limit) {
  Instructions instructions(delta);
  const auto base_size = instructions.size();
  const auto size = instructions.size();
  if (!base_size || !size) return cut_short();
  if (*base_size != base.size()) return Error("a delta of another base");
  if (*size > limit) return Error("an object of " + std::to_string(*size) + " bytes, too large");
  std::string out;
  while (!instructions.empty()) {
    const unsigned op = *instructions.byte();
    std::optional<std::string_view> piece;
    if ((op & 0x80U) != 0) {
      const auto offset = instructions.parts(op, 0, 4);
      auto count = instructions.parts(op, 4, 3);
      if (!offset || !count) return cut_short();
      if (*count == 0) count = 0x10000;
      if (*offset > base.size() || *count > base.size() - *offset) {
        return Error("a delta that copies from outside its base");
      }
      piece = base.substr(static_cast<std::size_t>(*offset), static_cast<std::size_t>(*count));
    } else if (op != 0) {
      piece = instructions.take(op);
    } else {
      return Error("a delta with an unknown instruction");
    }
    if (!piece) return cut_short();
    if (piece->size() > *size - out.size()) return Error("a delta that makes more than it says");
    out += *piece;
  }
  if (out.size() != *size) return Error("a delta that makes less than it says");
  return out;
}

}  // namespace cofferdam::orchestrator::reader
