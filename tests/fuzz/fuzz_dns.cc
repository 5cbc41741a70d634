// DNS from both sides: a question is answered or dropped, and the answer says what was asked; an
// answer of a server is read or refused, and what is read fits the question.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "egressproxy/dns_message.h"

namespace dns = cofferdam::egressproxy::dns;
namespace policy = cofferdam::policy;

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check_reply(const dns::Query& query, const dns::Reply& reply, std::size_t limit) {
  const std::string out = dns::write_reply(query, reply, limit);
  require(out.size() <= limit);
  require(std::string_view(out).substr(12, query.question.size()) == query.question);
  require((static_cast<unsigned char>(out[2]) & 0x80U) != 0);  // an answer
  // The server's own reader takes it for what it is, where a host name was asked for.
  const auto name = policy::HostName::parse(query.name);
  const bool truncated = (static_cast<unsigned char>(out[2]) & 0x02U) != 0;
  if (!name || !query.name_is_host || query.qclass != 1 || query.type != 1 || truncated) return;
  const auto read = dns::parse_answer(out, *name, dns::Type::kA);
  require(read.ok() && read->addresses.size() == reply.answers.size());
}

void check_question(std::string_view bytes) {
  const dns::ParsedQuery parsed = dns::parse_query(bytes);
  if (parsed.drop) return;
  if (parsed.error) {
    require(dns::write_error(bytes, *parsed.error).size() == 12);
    return;
  }
  const dns::Query& query = parsed.query;
  require(query.payload_size >= 512 && query.payload_size <= 1232);
  // Nothing of the question is compressed: it is sent back as it came.
  require(query.question.size() >= 5 && query.question.size() <= 255 + 4);
  dns::Reply negative;
  negative.rcode = dns::Rcode::kNxDomain;
  negative.soa = true;
  negative.extended_error = 15;
  negative.extended_text = "denied_by_rule";
  check_reply(query, negative, query.payload_size);
  dns::Reply positive;
  positive.rcode = dns::Rcode::kNoError;
  for (int i = 0; i < 16; ++i) {
    positive.answers.push_back(
        {dns::Type::kA, 60, std::string("\x08\x08\x08", 3) + static_cast<char>(i)});
  }
  check_reply(query, positive, query.payload_size);
  check_reply(query, positive, 65535);
  (void)dns::reverse_address(query.name);
}

void check_answer(std::string_view bytes, const policy::HostName& name, dns::Type type) {
  const auto answer = dns::parse_answer(bytes, name, type);
  if (!answer) return;
  require(answer->aliases.size() <= 8 && answer->ttl <= 0x7fffffffU);
  for (const auto& address : answer->addresses) {
    require(type == dns::Type::kAaaa || address.is_v4());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_question(bytes);
  static const auto name = *policy::HostName::parse("a.example.com");
  check_answer(bytes, name, dns::Type::kA);
  check_answer(bytes, name, dns::Type::kAaaa);
  return 0;
}
