#include "egressproxy/tls_client_hello.h"

#include "egressproxy/dns_wire.h"

namespace cofferdam::egressproxy {
namespace {

using State = ClientHello::State;
using dns::WireReader;  // a bounded big-endian reader

constexpr std::uint8_t kRecordHandshake = 22;
constexpr std::uint8_t kMessageClientHello = 1;
constexpr std::size_t kMaxRecord = 16384;
constexpr std::uint16_t kExtensionServerName = 0;
constexpr std::uint16_t kExtensionEncryptedHello = 0xfe0d;

std::uint32_t u24(WireReader& reader) {
  const std::uint32_t high = reader.u8();
  return high << 16U | reader.u16();
}

// Joins the handshake bytes of the records; the state says whether the message is whole.
State join_records(std::string_view bytes, std::string& message) {
  WireReader records(bytes);
  std::size_t needed = 4;
  std::size_t claimed = 0;  // by the records' lengths, also of what has not come yet
  while (message.size() < needed) {
    if (records.left() == 0) return State::kNeedMore;
    const bool first = records.position() == 0;
    const State wrong = first ? State::kNotTls : State::kMalformed;
    if (records.u8() != kRecordHandshake) return wrong;
    if (records.left() < 1) return State::kNeedMore;
    if (records.u8() != 3) return wrong;
    if (records.left() < 3) return State::kNeedMore;
    (void)records.u8();  // minor version
    const std::size_t length = records.u16();
    if (length == 0 || length > kMaxRecord) return wrong;
    claimed += length;
    message += records.bytes(length < records.left() ? length : records.left());
    if (!message.empty() && static_cast<std::uint8_t>(message.front()) != kMessageClientHello) {
      return wrong;
    }
    if (message.size() >= 4) {
      WireReader header(message, 1);
      needed = 4 + u24(header);
      if (needed > kMaxClientHello) return State::kMalformed;
    }
  }
  // Early data (RFC 8446 4.2.10) lies in records of its own; a second handshake message here is
  // nothing that a client sends before an answer, and it is none also while it has not come yet.
  return claimed == needed ? State::kComplete : State::kMalformed;
}

// RFC 6066: a list with exactly one host_name.
bool read_server_name(std::string_view data, std::optional<std::string>& name) {
  WireReader reader(data);
  const std::size_t list = reader.u16();
  if (!reader.ok() || list != reader.left()) return false;
  while (reader.left() > 0) {
    const std::uint8_t kind = reader.u8();
    const std::string_view value = reader.bytes(reader.u16());
    if (!reader.ok() || kind != 0 || name || value.empty()) return false;
    name = std::string(value);
  }
  return name.has_value();
}

bool read_extensions(WireReader& reader, ClientHello& hello) {
  if (reader.left() == 0) return true;  // TLS 1.2 without extensions
  const std::size_t total = reader.u16();
  if (!reader.ok() || total != reader.left()) return false;
  while (reader.left() > 0) {
    const std::uint16_t type = reader.u16();
    const std::string_view data = reader.bytes(reader.u16());
    if (!reader.ok()) return false;
    if (type == kExtensionEncryptedHello) hello.encrypted_hello = true;
    // A second server_name would make two readers see two names.
    if (type == kExtensionServerName &&
        (hello.server_name || !read_server_name(data, hello.server_name))) {
      return false;
    }
  }
  return true;
}

}  // namespace

ClientHello parse_client_hello(std::string_view bytes) {
  ClientHello hello;
  std::string message;
  hello.state = join_records(bytes, message);
  if (hello.state != State::kComplete) return hello;
  WireReader reader(message, 4);
  const std::uint8_t major = reader.u8();
  (void)reader.u8();
  (void)reader.bytes(32);           // random
  (void)reader.bytes(reader.u8());  // session id
  const std::size_t suites = reader.u16();
  (void)reader.bytes(suites);
  const std::size_t compressions = reader.u8();
  (void)reader.bytes(compressions);
  const bool well =
      reader.ok() && major == 3 && suites >= 2 && suites % 2 == 0 && compressions >= 1;
  if (!well || !read_extensions(reader, hello)) {
    hello = {};
    hello.state = State::kMalformed;
  }
  return hello;
}

}  // namespace cofferdam::egressproxy
