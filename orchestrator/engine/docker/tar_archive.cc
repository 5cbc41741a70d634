#include "orchestrator/engine/docker/tar_archive.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace cofferdam::orchestrator::docker {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kNameSize = 100;
constexpr std::uint64_t kLargestFile = 0777'7777'7777ULL;  // eleven octal digits

// Offsets and sizes of a ustar header's fields.
struct Field {
  std::size_t offset;
  std::size_t size;
};
constexpr Field kName{0, kNameSize};
constexpr Field kMode{100, 8};
constexpr Field kUid{108, 8};
constexpr Field kGid{116, 8};
constexpr Field kSize{124, 12};
constexpr Field kTime{136, 12};
constexpr Field kChecksum{148, 8};
constexpr Field kType{156, 1};
constexpr Field kMagic{257, 8};

class Header final {
 public:
  void text(Field field, std::string_view value) {
    std::memcpy(bytes_.data() + field.offset, value.data(), value.size());
  }
  void octal(Field field, std::uint64_t value) {
    std::array<char, 24> digits{};
    std::snprintf(digits.data(), digits.size(), "%0*llo", static_cast<int>(field.size) - 1,
                  static_cast<unsigned long long>(value));
    text(field, std::string_view(digits.data(), field.size));
  }
  std::string finish() {
    text(kChecksum, "        ");
    std::uint32_t sum = 0;
    for (const char c : bytes_) sum += static_cast<unsigned char>(c);
    std::array<char, 16> digits{};
    std::snprintf(digits.data(), digits.size(), "%06o", static_cast<unsigned int>(sum));
    text(kChecksum, std::string_view(digits.data(), 7));
    return {bytes_.data(), bytes_.size()};
  }

 private:
  std::array<char, kBlock> bytes_{};
};

}  // namespace

Result<std::string> make_tar_of_program(std::string_view name, std::string_view content) {
  if (name.empty() || name.size() > kNameSize || name.front() == '/') {
    return Error("tar: not a name of an entry");
  }
  if (content.size() > kLargestFile) return Error("tar: too large");
  Header header;
  header.text(kName, name);
  header.octal(kMode, 0555);
  header.octal(kUid, 0);
  header.octal(kGid, 0);
  header.octal(kSize, content.size());
  header.octal(kTime, 0);
  header.text(kType, "0");
  header.text(kMagic, std::string_view("ustar\00000", 8));
  std::string archive = header.finish();
  archive.append(content);
  archive.append((kBlock - content.size() % kBlock) % kBlock, '\0');
  archive.append(2 * kBlock, '\0');
  return archive;
}

}  // namespace cofferdam::orchestrator::docker
