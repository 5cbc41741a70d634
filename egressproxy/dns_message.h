// DNS messages (RFC 1035, 6891, 8914): what the gate reads from the workload and from its servers,
// and what it writes. Pure. Everything that is read is hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/policy/address.h"
#include "common/policy/host_name.h"

namespace cofferdam::egressproxy::dns {

enum class Type : std::uint16_t { kA = 1, kCname = 5, kSoa = 6, kPtr = 12, kAaaa = 28, kOpt = 41 };
enum class Rcode : std::uint8_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kBadVers = 16,  // extended: needs an OPT record
};

// "A", "AAAA", … or "TYPE65".
std::string type_text(std::uint16_t type);

struct Query {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  std::string question;      // the question section's bytes, to be sent back as they came
  std::string name;          // lower-case text without the last dot; "" is the root
  bool name_is_host = true;  // no label holds a byte that no host name has
  std::uint16_t type = 0;
  std::uint16_t qclass = 0;
  bool edns = false;
  std::uint8_t edns_version = 0;
  std::uint16_t payload_size = 512;  // what the client takes over UDP, 512..1232
};

// What to do with a packet: answer the query, answer with an error, or nothing at all.
struct ParsedQuery {
  bool drop = false;           // no answer: too short for one, or itself an answer
  std::optional<Rcode> error;  // answer with this and no question
  Query query;
};
ParsedQuery parse_query(std::string_view packet);

struct Record {
  Type type = Type::kA;
  std::uint32_t ttl = 0;
  std::string data;  // RDATA
};

struct Reply {
  Rcode rcode = Rcode::kServFail;
  std::vector<Record> answers;  // all owned by the question's name
  bool soa = false;             // negative: a synthetic SOA in the authority section
  std::optional<std::uint16_t> extended_error;  // RFC 8914, only sent to a client with EDNS
  std::string extended_text;
};

// `limit` bytes at most: past it the answer is empty with TC set.
std::string write_reply(const Query& query, const Reply& reply, std::size_t limit);
// For a packet whose question could not be read.
std::string write_error(std::string_view packet, Rcode rcode);

std::string address_data(const policy::IpAddress& address);
std::string name_data(const policy::HostName& name);

// The name of a reverse lookup: 4.3.2.1.in-addr.arpa, or nibbles below ip6.arpa.
std::optional<policy::IpAddress> reverse_address(std::string_view name);

// What a server answered about one name and type.
struct Answer {
  Rcode rcode = Rcode::kServFail;
  std::vector<policy::IpAddress> addresses;  // at the end of the chain of aliases
  std::uint32_t ttl = 0;                     // the least of the chain and the addresses
  std::vector<std::string> aliases;          // for events
};
// The chain of owners is followed from `name` by our own hand (at most 8 aliases); records that do
// not belong to it are ignored. Errors: malformed, an alias loop, a chain that is too long.
Result<Answer> parse_answer(std::string_view packet, const policy::HostName& name, Type type);

}  // namespace cofferdam::egressproxy::dns
