#include "egressproxy/dns_message.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "egressproxy/dns_wire.h"

namespace cofferdam::egressproxy::dns {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::uint16_t kFlagResponse = 0x8000;
constexpr std::uint16_t kFlagTruncated = 0x0200;
constexpr std::uint16_t kFlagRecursionDesired = 0x0100;
constexpr std::uint16_t kFlagRecursionAvailable = 0x0080;
constexpr std::uint16_t kOptionExtendedError = 15;
constexpr std::uint16_t kPayload = 1232;
constexpr std::uint32_t kNegativeTtl = 5;      // seconds
constexpr std::uint32_t kMaxTtl = 0x7fffffff;  // RFC 2181 section 8: past it, zero is meant
constexpr std::size_t kTypicalReply = 256;

struct Header {
  std::uint16_t id;
  std::uint16_t flags;
  std::uint16_t questions;
  std::uint16_t answers;
  std::uint16_t authorities;
  std::uint16_t additionals;
};

Header read_header(WireReader& reader) {
  Header header{};
  header.id = reader.u16();
  header.flags = reader.u16();
  header.questions = reader.u16();
  header.answers = reader.u16();
  header.authorities = reader.u16();
  header.additionals = reader.u16();
  return header;
}

struct RawRecord {
  std::string owner;
  bool clean = true;
  std::uint16_t type = 0;
  std::uint16_t rclass = 0;
  std::uint32_t ttl = 0;
  std::size_t data_at = 0;
  std::string_view data;
};

RawRecord read_record(WireReader& reader) {
  RawRecord record;
  record.owner = reader.name(&record.clean);
  record.type = reader.u16();
  record.rclass = reader.u16();
  record.ttl = reader.u32();
  if (record.ttl > kMaxTtl) record.ttl = 0;
  const std::uint16_t length = reader.u16();
  record.data_at = reader.position();
  record.data = reader.bytes(length);
  return record;
}

void put_header(std::string& out, std::uint16_t id, std::uint16_t flags, std::uint16_t questions,
                std::size_t answers, std::size_t authorities, std::size_t additionals) {
  put_u16(out, id);
  put_u16(out, flags);
  put_u16(out, questions);
  put_u16(out, static_cast<std::uint16_t>(answers));
  put_u16(out, static_cast<std::uint16_t>(authorities));
  put_u16(out, static_cast<std::uint16_t>(additionals));
}

// The SOA of an answer that says no: it only carries the time that the "no" may be kept.
std::string make_soa() {
  std::string out(1, '\0');  // the root owns it
  put_u16(out, static_cast<std::uint16_t>(Type::kSoa));
  put_u16(out, 1);
  put_u32(out, kNegativeTtl);
  std::string data;
  put_name(data, "gate.invalid");
  put_name(data, "nobody.invalid");
  for (const std::uint32_t number : {1U, 3600U, 600U, 86400U, kNegativeTtl}) put_u32(data, number);
  put_u16(out, static_cast<std::uint16_t>(data.size()));
  return out + data;
}

void put_soa(std::string& out) {
  static const std::string soa = make_soa();
  out += soa;
}

void put_opt(std::string& out, const Reply& reply) {
  out += '\0';
  put_u16(out, static_cast<std::uint16_t>(Type::kOpt));
  put_u16(out, kPayload);
  out += static_cast<char>(static_cast<unsigned>(reply.rcode) >> 4U);
  out += '\0';  // version 0
  put_u16(out, 0);
  if (!reply.extended_error) {
    put_u16(out, 0);
    return;
  }
  const auto size = static_cast<std::uint16_t>(2 + reply.extended_text.size());
  put_u16(out, static_cast<std::uint16_t>(size + 4));
  put_u16(out, kOptionExtendedError);
  put_u16(out, size);
  put_u16(out, *reply.extended_error);
  out += reply.extended_text;
}

bool read_additionals(WireReader& reader, const Header& header, Query& query) {
  for (int i = 0; i < header.additionals; ++i) {
    const RawRecord record = read_record(reader);
    if (!reader.ok()) return false;
    if (record.type != static_cast<std::uint16_t>(Type::kOpt)) continue;
    if (query.edns || !record.owner.empty()) return false;  // one OPT, owned by the root
    query.edns = true;
    query.edns_version = static_cast<std::uint8_t>(record.ttl >> 16U & 0xffU);
    query.payload_size = std::clamp<std::uint16_t>(record.rclass, 512, kPayload);
  }
  return true;
}

}  // namespace

std::string type_text(std::uint16_t type) {
  struct Known {
    std::uint16_t type;
    const char* text;
  };
  constexpr Known kKnown[] = {{1, "A"},      {2, "NS"},     {5, "CNAME"}, {6, "SOA"},
                              {12, "PTR"},   {15, "MX"},    {16, "TXT"},  {28, "AAAA"},
                              {33, "SRV"},   {35, "NAPTR"}, {64, "SVCB"}, {65, "HTTPS"},
                              {252, "AXFR"}, {255, "ANY"}};
  for (const Known& known : kKnown) {
    if (known.type == type) return known.text;
  }
  return "TYPE" + std::to_string(type);
}

ParsedQuery parse_query(std::string_view packet) {
  ParsedQuery parsed;
  WireReader reader(packet);
  const Header header = read_header(reader);
  if (!reader.ok() || (header.flags & kFlagResponse) != 0) {
    parsed.drop = true;
    return parsed;
  }
  Query& query = parsed.query;
  query.id = header.id;
  query.recursion_desired = (header.flags & kFlagRecursionDesired) != 0;
  if ((header.flags >> 11U & 0xfU) != 0) {
    parsed.error = Rcode::kNotImp;
    return parsed;
  }
  parsed.error = Rcode::kFormErr;
  if (header.questions != 1 || header.answers != 0 || header.authorities != 0) return parsed;
  query.name = reader.plain_name(&query.name_is_host);
  query.type = reader.u16();
  query.qclass = reader.u16();
  if (!reader.ok()) return parsed;
  query.question = packet.substr(kHeader, reader.position() - kHeader);
  if (!read_additionals(reader, header, query)) return parsed;
  parsed.error.reset();
  return parsed;
}

std::string write_reply(const Query& query, const Reply& reply, std::size_t limit) {
  const auto build = [&](bool truncated) {
    const std::size_t answers = truncated ? 0 : reply.answers.size();
    const std::size_t authorities = reply.soa && !truncated ? 1 : 0;
    std::string out;
    out.reserve(kTypicalReply);
    const auto flags = static_cast<std::uint16_t>(
        kFlagResponse | kFlagRecursionAvailable | (truncated ? kFlagTruncated : 0) |
        (query.recursion_desired ? kFlagRecursionDesired : 0) |
        (static_cast<unsigned>(reply.rcode) & 0xfU));
    put_header(out, query.id, flags, 1, answers, authorities, query.edns ? 1 : 0);
    out += query.question;
    for (std::size_t i = 0; i < answers; ++i) {
      const Record& record = reply.answers[i];
      put_u16(out, 0xc000 | kHeader);  // the question's name
      put_u16(out, static_cast<std::uint16_t>(record.type));
      put_u16(out, 1);
      put_u32(out, record.ttl);
      put_u16(out, static_cast<std::uint16_t>(record.data.size()));
      out += record.data;
    }
    if (authorities > 0) put_soa(out);
    if (query.edns) put_opt(out, reply);
    return out;
  };
  std::string out = build(false);
  if (out.size() > limit) out = build(true);
  return out;
}

std::string write_error(std::string_view packet, Rcode rcode) {
  WireReader reader(packet);
  const Header header = read_header(reader);
  std::string out;
  const auto flags = static_cast<std::uint16_t>(kFlagResponse | (header.flags & 0x7900U) |
                                                static_cast<unsigned>(rcode));
  put_header(out, header.id, flags, 0, 0, 0, 0);
  return out;
}

std::string address_data(const policy::IpAddress& address) {
  const auto bytes = address.bytes();
  return {bytes.begin(), bytes.end()};
}

std::string name_data(const policy::HostName& name) {
  std::string out;
  put_name(out, name.text());
  return out;
}

std::optional<policy::IpAddress> reverse_address(std::string_view name) {
  constexpr std::string_view kV4 = ".in-addr.arpa";
  constexpr std::string_view kV6 = ".ip6.arpa";
  if (name.ends_with(kV4)) {
    name.remove_suffix(kV4.size());
    std::string text;
    for (int part = 0; part < 4; ++part) {
      const auto dot = name.rfind('.');
      if ((dot == std::string_view::npos) != (part == 3)) return std::nullopt;
      if (part > 0) text += '.';
      text += dot == std::string_view::npos ? name : name.substr(dot + 1);
      name = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
    }
    return policy::IpAddress::parse(text);
  }
  if (!name.ends_with(kV6)) return std::nullopt;
  name.remove_suffix(kV6.size());
  if (name.size() != 63) return std::nullopt;
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t nibble = 0; nibble < 32; ++nibble) {
    const char* digit = name.data() + nibble * 2;
    unsigned value = 0;
    const auto [end, code] = std::from_chars(digit, digit + 1, value, 16);
    if (code != std::errc{} || end != digit + 1) return std::nullopt;
    if (nibble < 31 && digit[1] != '.') return std::nullopt;
    const std::size_t at = 15 - nibble / 2;
    bytes[at] = static_cast<std::uint8_t>(bytes[at] | value << (nibble % 2 == 0 ? 0U : 4U));
  }
  return policy::IpAddress::from_v6(bytes);
}

Result<Answer> parse_answer(std::string_view packet, const policy::HostName& name, Type type) {
  constexpr std::size_t kMaxAliases = 8;
  constexpr std::size_t kMaxRecords = 512;
  WireReader reader(packet);
  const Header header = read_header(reader);
  if (!reader.ok() || (header.flags & kFlagResponse) == 0 || header.questions != 1) {
    return Error("dns: not an answer");
  }
  if ((header.flags & kFlagTruncated) != 0) return Error("dns: truncated");
  bool clean = true;
  const std::string asked = reader.name(&clean);
  const std::uint16_t asked_type = reader.u16();
  const std::uint16_t asked_class = reader.u16();
  if (!reader.ok() || asked != name.text() || asked_type != static_cast<std::uint16_t>(type) ||
      asked_class != 1) {
    return Error("dns: another question");
  }
  Answer answer;
  answer.rcode = static_cast<Rcode>(header.flags & 0xfU);
  std::vector<RawRecord> records;
  for (std::size_t i = 0; i < header.answers && i < kMaxRecords; ++i) {
    RawRecord record = read_record(reader);
    if (!reader.ok()) return Error("dns: malformed");
    if (record.rclass == 1 && record.clean) records.push_back(std::move(record));
  }
  std::string owner = name.text();
  std::uint32_t ttl = UINT32_MAX;
  while (true) {
    const RawRecord* alias = nullptr;
    for (const RawRecord& record : records) {
      if (record.owner != owner) continue;
      if (record.type == static_cast<std::uint16_t>(type)) {
        const std::size_t size = type == Type::kA ? 4 : 16;
        if (record.data.size() != size) return Error("dns: an address of the wrong size");
        std::array<std::uint8_t, 16> bytes{};
        std::copy(record.data.begin(), record.data.end(), bytes.begin());
        const auto address =
            type == Type::kA ? policy::IpAddress::from_v4({bytes[0], bytes[1], bytes[2], bytes[3]})
                             : policy::IpAddress::from_v6(bytes);
        if (std::find(answer.addresses.begin(), answer.addresses.end(), address) ==
            answer.addresses.end()) {
          answer.addresses.push_back(address);
        }
        ttl = std::min(ttl, record.ttl);
      } else if (record.type == static_cast<std::uint16_t>(Type::kCname) && alias == nullptr) {
        alias = &record;
      }
    }
    if (!answer.addresses.empty() || alias == nullptr) break;
    if (answer.aliases.size() >= kMaxAliases) return Error("dns: more than 8 aliases");
    WireReader data(packet, alias->data_at);
    owner = data.name(&clean);
    if (!data.ok() || !clean) return Error("dns: malformed alias");
    if (owner == name.text() ||
        std::find(answer.aliases.begin(), answer.aliases.end(), owner) != answer.aliases.end()) {
      return Error("dns: an alias loop");
    }
    ttl = std::min(ttl, alias->ttl);
    answer.aliases.push_back(owner);
  }
  answer.ttl = ttl == UINT32_MAX ? 0 : ttl;
  return answer;
}

}  // namespace cofferdam::egressproxy::dns
