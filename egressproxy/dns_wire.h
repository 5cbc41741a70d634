// Reading and writing the pieces of a DNS message; WireReader serves TLS and SOCKS too. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cofferdam::egressproxy::dns {

// A cursor that never reads past the end; after the first failure ok() stays false and everything
// is 0.
class WireReader final {
 public:
  explicit WireReader(std::string_view packet, std::size_t at = 0) : packet_(packet), at_(at) {}

  bool ok() const { return ok_; }
  std::size_t position() const { return at_; }
  std::size_t left() const { return ok_ ? packet_.size() - at_ : 0; }
  std::uint8_t u8();
  std::uint16_t u16();
  std::uint32_t u32();
  std::string_view bytes(std::size_t count);
  // A name, compression followed (each pointer must point further back than the one before), folded
  // to lower case, without the last dot. A label with a dot or with a byte that is not printable
  // ASCII sets *clean to false and is kept out of the text.
  std::string name(bool* clean) { return read_name(clean, true); }
  // The same where nothing may be compressed: a question that is sent back as it came.
  std::string plain_name(bool* clean) { return read_name(clean, false); }

 private:
  std::string read_name(bool* clean, bool pointers);
  bool need(std::size_t count);
  std::string_view packet_;
  std::size_t at_;
  bool ok_ = true;
};

void put_u16(std::string& out, std::uint16_t value);
void put_u32(std::string& out, std::uint32_t value);
// `name` is text without the last dot, "" is the root; not compressed.
void put_name(std::string& out, std::string_view name);

}  // namespace cofferdam::egressproxy::dns
