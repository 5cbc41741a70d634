#include "orchestrator/changes/tar_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "common/base/escape.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/risk.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kName = 100;
constexpr std::uint64_t kMaxOctal = 077777777777;  // of the size's eleven digits

// ustar's fields: where they begin.
constexpr std::size_t kModeAt = 100;
constexpr std::size_t kUidAt = 108;
constexpr std::size_t kGidAt = 116;
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kTimeAt = 136;
constexpr std::size_t kSumAt = 148;
constexpr std::size_t kTypeAt = 156;
constexpr std::size_t kLinkAt = 157;
constexpr std::size_t kMagicAt = 257;

void put(std::string& block, std::size_t at, std::string_view text) {
  block.replace(at, text.size(), text);
}

void put_octal(std::string& block, std::size_t at, int digits, std::uint64_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%0*llo", digits, static_cast<unsigned long long>(value));
  put(block, at, text.data());
}

// "<length> <key>=<value>\n", where the length counts itself.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest;
  while (length != rest + std::to_string(length).size())
    length = rest + std::to_string(length).size();
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

}  // namespace

Status TarWriter::pad(std::uint64_t size) {
  const auto over = static_cast<std::size_t>(size % kBlock);
  return over == 0 ? Status() : out_(std::string(kBlock - over, '\0'));
}

Status TarWriter::block(char type, const std::string& name, const std::string& link,
                        std::uint64_t size, unsigned mode) {
  std::string bytes(kBlock, '\0');
  put(bytes, 0, std::string_view(name).substr(0, kName));
  put_octal(bytes, kModeAt, 7, mode);
  put_octal(bytes, kUidAt, 7, 0);
  put_octal(bytes, kGidAt, 7, 0);
  put_octal(bytes, kSizeAt, 11, std::min(size, kMaxOctal));
  put_octal(bytes, kTimeAt, 11, 0);
  bytes[kTypeAt] = type;
  put(bytes, kLinkAt, std::string_view(link).substr(0, kName));
  put(bytes, kMagicAt,
      std::string_view("ustar\0"
                       "00",
                       8));
  put(bytes, kSumAt, "        ");
  unsigned sum = 0;
  for (const char c : bytes) sum += static_cast<unsigned char>(c);
  put_octal(bytes, kSumAt, 6, sum);
  bytes[kSumAt + 6] = '\0';
  return out_(bytes);
}

Status TarWriter::header(char type, const std::string& name, const std::string& link,
                         std::uint64_t size, unsigned mode) {
  if (name.empty() || !os::is_tree_path(name)) return Error("not a name for an archive: " + name);
  std::string records;
  if (!is_valid_utf8(name) || !is_valid_utf8(link)) records += pax_record("hdrcharset", "BINARY");
  if (name.size() > kName || !is_valid_utf8(name)) records += pax_record("path", name);
  if (link.size() > kName || !is_valid_utf8(link)) records += pax_record("linkpath", link);
  if (size > kMaxOctal) records += pax_record("size", std::to_string(size));
  if (!records.empty()) {
    TRY(block('x', "pax_header", {}, records.size(), 0644));
    TRY(out_(records));
    TRY(pad(records.size()));
  }
  return block(type, name, link, size, mode);
}

Status TarWriter::add_file(const std::string& name, bool executable, std::uint64_t size,
                           const ContentSource& content) {
  TRY(header('0', name, {}, size, executable ? 0755 : 0644));
  std::uint64_t written = 0;
  TRY(content([&](std::string_view bytes) -> Status {
    written += bytes.size();
    if (written > size) return Error("it changed while it was read");
    return out_(bytes);
  }));
  if (written != size) return Error("it changed while it was read");
  return pad(size);
}

Status TarWriter::add_directory(const std::string& name) {
  return header('5', name, {}, 0, 0755);
}

Status TarWriter::add_link(const std::string& name, const std::string& text) {
  if (text.empty() || link_escapes(name, text)) return Error("a link that leads out: " + name);
  return header('2', name, text, 0, 0777);
}

Status TarWriter::finish() {
  return out_(std::string(2 * kBlock, '\0'));
}

}  // namespace cofferdam::orchestrator::changes
