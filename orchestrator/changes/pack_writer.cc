#include "orchestrator/changes/pack_writer.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>

#include "common/base/check.h"
#include "common/os/files.h"
#include "common/os/object_copy.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kPiece = 64U << 10U;

void append_number(std::string& out, std::uint64_t value, unsigned bytes) {
  for (unsigned i = bytes; i > 0; --i) {
    out += static_cast<char>((value >> (8 * (i - 1))) & 0xffU);
  }
}

std::string pack_header(std::size_t count) {
  std::string header = "PACK";
  append_number(header, 2, 4);
  append_number(header, count, 4);
  return header;
}

// The kind and the size of an object, seven bits a byte after the first.
std::string entry_header(reader::ObjectType type, std::uint64_t size) {
  std::string header;
  unsigned byte = (static_cast<unsigned>(type) << 4U) | static_cast<unsigned>(size & 15U);
  for (size >>= 4U; size > 0; size >>= 7U) {
    header += static_cast<char>(byte | 0x80U);
    byte = static_cast<unsigned>(size & 0x7fU);
  }
  header += static_cast<char>(byte);
  return header;
}

// Compresses in pieces.
Status deflate_to(std::string_view content, std::string& out) {
  z_stream stream{};
  if (::deflateInit(&stream, Z_BEST_SPEED) != Z_OK) return Error("zlib: out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, ::deflateEnd);
  std::array<char, kPiece> buffer;  // NOLINT: filled before it is read
  int code = Z_OK;
  while (code != Z_STREAM_END) {
    if (stream.avail_in == 0 && !content.empty()) {
      const std::string_view piece = content.substr(0, 1U << 30U);
      // zlib's type; it does not write there.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));  // NOLINT
      stream.avail_in = static_cast<uInt>(piece.size());
      content.remove_prefix(piece.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());  // NOLINT: zlib's type
    stream.avail_out = static_cast<uInt>(buffer.size());
    code = ::deflate(&stream, content.empty() ? Z_FINISH : Z_NO_FLUSH);
    if (code == Z_STREAM_ERROR) return Error("zlib failed");
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  return {};
}

class Sha1 final {
 public:
  Sha1() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha1(), nullptr) == 1);
  }
  void update(std::string_view bytes) {
    CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  std::string finish() {
    reader::ObjectId digest;
    unsigned int length = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), digest.bytes.data(), &length) == 1);
    return std::string(digest.raw());
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

std::string hex(std::string_view raw) {
  return reader::to_hex(*reader::id_from_raw(raw));
}

}  // namespace

Result<PackWriter> PackWriter::begin(const std::filesystem::path& directory) {
  // The name that git's own unfinished packs have, so that git gc removes it.
  std::string name = (directory / "tmp_pack_XXXXXX").string();
  os::UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) return Error::from_errno("create a pack in " + directory.string());
  PackWriter writer(directory, name, std::move(fd));
  TRY(writer.write(pack_header(0)));
  return writer;
}

PackWriter::~PackWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status PackWriter::write(std::string_view bytes) {
  size_ += bytes.size();
  return os::write_all(fd_.get(), bytes);
}

Status PackWriter::add(reader::ObjectType type, const reader::ObjectId& id,
                       std::string_view content) {
  std::string bytes = entry_header(type, content.size());
  TRY(deflate_to(content, bytes));
  Entry entry{id, 0, size_};
  entry.checksum = static_cast<std::uint32_t>(::crc32_z(
      0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));  // NOLINT: zlib's type
  TRY(write(bytes));
  entries_.push_back(entry);
  return {};
}

// The true count in front, the checksum behind; returns that.
Result<std::string> PackWriter::complete_pack() {
  const std::string header = pack_header(entries_.size());
  if (::pwrite(fd_.get(), header.data(), header.size(), 0) != ssize_t{kHeader}) {
    return Error::from_errno("write a pack");
  }
  Sha1 hash;
  std::array<char, kPiece> buffer;  // NOLINT: filled before it is read
  for (std::uint64_t at = 0; at < size_;) {
    const ssize_t got = ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (got <= 0) return Error::from_errno("read a pack");
    hash.update({buffer.data(), static_cast<std::size_t>(got)});
    at += static_cast<std::uint64_t>(got);
  }
  std::string checksum = hash.finish();
  TRY(write(checksum));
  if (::fchmod(fd_.get(), 0444) != 0) return Error::from_errno("chmod");
  if (::fsync(fd_.get()) != 0) return Error::from_errno("sync a pack");
  return checksum;
}

std::string PackWriter::index(std::string_view pack_checksum) {
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
  std::string out("\xfftOc\0\0\0\2", 8);
  std::size_t at = 0;
  for (unsigned first = 0; first < 256; ++first) {
    while (at < entries_.size() && entries_[at].id.bytes[0] <= first) ++at;
    append_number(out, at, 4);
  }
  for (const Entry& entry : entries_) out += entry.id.raw();
  for (const Entry& entry : entries_) append_number(out, entry.checksum, 4);
  std::string large;
  for (const Entry& entry : entries_) {
    if (entry.offset < 0x80000000U) {
      append_number(out, entry.offset, 4);
    } else {
      append_number(out, 0x80000000U | (large.size() / 8), 4);
      append_number(large, entry.offset, 8);
    }
  }
  out += large;
  out += pack_checksum;
  Sha1 hash;
  hash.update(out);
  out += hash.finish();
  return out;
}

// Into a second file, as they are: no object here rests on another one.
Status PackWriter::drop_all_but(const reader::ObjectIdSet& wanted) {
  TRY_ASSIGN(PackWriter kept, begin(directory_));
  std::string bytes;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!wanted.contains(entry.id)) continue;
    const std::uint64_t end = i + 1 < entries_.size() ? entries_[i + 1].offset : size_;
    kept.entries_.push_back({entry.id, entry.checksum, kept.size_});
    for (std::uint64_t at = entry.offset; at < end;) {
      bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(end - at, kPiece)));
      const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (got <= 0) return Error::from_errno("read a pack");
      TRY(kept.write(std::string_view(bytes).substr(0, static_cast<std::size_t>(got))));
      at += static_cast<std::uint64_t>(got);
    }
  }
  std::swap(temporary_, kept.temporary_);  // what is not wanted goes with `kept`
  std::swap(fd_, kept.fd_);
  std::swap(entries_, kept.entries_);
  std::swap(size_, kept.size_);
  return {};
}

Status PackWriter::finish(const reader::ObjectIdSet& wanted) {
  const bool all = std::all_of(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return wanted.contains(entry.id); });
  if (!all) TRY(drop_all_but(wanted));
  if (entries_.empty()) return {};
  TRY_ASSIGN(const std::string checksum, complete_pack());
  const std::string name = "pack-" + hex(checksum);
  const std::filesystem::path pack = directory_ / (name + ".pack");
  const std::filesystem::path index_file = directory_ / (name + ".idx");
  if (::rename(temporary_.c_str(), pack.c_str()) != 0) return Error::from_errno("rename a pack");
  temporary_.clear();
  const Status written = os::write_file_atomic(index_file, index(checksum), 0444);
  if (!written.ok()) {
    ::unlink(pack.c_str());
    return written;
  }
  return os::sync_directory(directory_);
}

}  // namespace cofferdam::orchestrator::changes
