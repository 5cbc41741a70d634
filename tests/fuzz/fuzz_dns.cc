// DNS from both sides: a query is answered or dropped, an answer is read or refused.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "egressproxy/dns_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace dns = cofferdam::egressproxy::dns;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const dns::ParsedQuery parsed = dns::parse_query(bytes);
  if (!parsed.drop && !parsed.error) {
    dns::Reply reply;
    reply.soa = true;
    reply.extended_error = 15;
    const std::string out = dns::write_reply(parsed.query, reply, parsed.query.payload_size);
    if (out.size() > parsed.query.payload_size) __builtin_trap();
    (void)dns::reverse_address(parsed.query.name);
  }
  static const auto name = *cofferdam::policy::HostName::parse("a.example.com");
  (void)dns::parse_answer(bytes, name, dns::Type::kA).ok();
  (void)dns::parse_answer(bytes, name, dns::Type::kAaaa).ok();
  return 0;
}
