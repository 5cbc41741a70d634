#include "egressproxy/dns_wire.h"

namespace cofferdam::egressproxy::dns {
namespace {

constexpr std::size_t kMaxName = 255;  // on the wire, RFC 1035 2.3.4

std::uint8_t octet(char c) {
  return static_cast<std::uint8_t>(c);
}

// Appends one label to the text of a name.
void append_label(std::string& text, std::string_view label, bool* clean) {
  if (!text.empty()) text += '.';
  for (const char c : label) {
    if (octet(c) <= 0x20 || octet(c) >= 0x7f || c == '.') {
      if (clean != nullptr) *clean = false;
      continue;
    }
    text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
}

}  // namespace

bool WireReader::need(std::size_t count) {
  ok_ = ok_ && packet_.size() - at_ >= count;
  return ok_;
}

std::uint8_t WireReader::u8() {
  return need(1) ? octet(packet_[at_++]) : std::uint8_t{0};
}

std::uint16_t WireReader::u16() {
  const unsigned high = u8();
  return static_cast<std::uint16_t>(high << 8U | u8());
}

std::uint32_t WireReader::u32() {
  const std::uint32_t high = u16();
  return high << 16U | u16();
}

std::string_view WireReader::bytes(std::size_t count) {
  if (!need(count)) return {};
  const std::string_view piece = packet_.substr(at_, count);
  at_ += count;
  return piece;
}

std::string WireReader::read_name(bool* clean, bool pointers) {
  if (clean != nullptr) *clean = true;
  std::string text;
  std::size_t wire = 0;
  std::size_t at = at_;
  std::size_t lowest = at_;  // pointers only go further back
  bool jumped = false;
  while (ok_) {
    if (at >= packet_.size()) break;
    const std::uint8_t length = octet(packet_[at]);
    if ((length & 0xc0U) == 0xc0U) {
      if (!pointers) break;
      if (at + 1 >= packet_.size()) break;
      const std::size_t target = (length & 0x3fU) << 8U | octet(packet_[at + 1]);
      if (!jumped) at_ = at + 2;
      if (target >= lowest) break;
      jumped = true;
      lowest = target;
      at = target;
      continue;
    }
    if ((length & 0xc0U) != 0 || at + 1 + length > packet_.size()) break;
    wire += length + 1U;
    if (wire > kMaxName) break;
    if (length == 0) {
      if (!jumped) at_ = at + 1;
      return text;
    }
    append_label(text, packet_.substr(at + 1, length), clean);
    at += length + 1U;
  }
  ok_ = false;
  return {};
}

void put_u16(std::string& out, std::uint16_t value) {
  out += static_cast<char>(value >> 8U);
  out += static_cast<char>(value & 0xffU);
}

void put_u32(std::string& out, std::uint32_t value) {
  put_u16(out, static_cast<std::uint16_t>(value >> 16U));
  put_u16(out, static_cast<std::uint16_t>(value & 0xffffU));
}

void put_name(std::string& out, std::string_view name) {
  while (!name.empty()) {
    const auto dot = name.find('.');
    const std::string_view label = name.substr(0, dot);
    out += static_cast<char>(label.size());
    out += label;
    name = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  }
  out += '\0';
}

}  // namespace cofferdam::egressproxy::dns
