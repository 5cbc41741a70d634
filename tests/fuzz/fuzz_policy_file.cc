// egress.json from any bytes: parsed or refused, and what was parsed decides without falling over,
// also after its rules with an end are taken out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/policy/egress_policy.h"

namespace {

using cofferdam::policy::EgressPolicy;

void decide_everything(const EgressPolicy& policy) {
  static const std::set<cofferdam::policy::IpAddress> own = {
      *cofferdam::policy::IpAddress::parse("198.51.100.1")};
  static const cofferdam::policy::IpAddress addresses[] = {
      *cofferdam::policy::IpAddress::parse("93.184.216.34"),
      *cofferdam::policy::IpAddress::parse("10.0.0.5"),
      *cofferdam::policy::IpAddress::parse("169.254.169.254"),
      *cofferdam::policy::IpAddress::parse("198.51.100.1"),
      *cofferdam::policy::IpAddress::parse("2606:2800:220::34")};
  for (const char* text : {"example.com:443", "a.example.com:80", "10.0.0.5:22", "localhost:443"}) {
    const auto endpoint = *cofferdam::policy::parse_endpoint(text);
    (void)policy.decide_endpoint(endpoint);
    if (endpoint.host.is_name()) (void)policy.decide_lookup(endpoint.host.name());
    const auto judged = policy.decide_addresses(endpoint.host, endpoint.port, addresses, own);
    for (const auto& address : judged.allowed) {
      // Whatever a policy says: never the metadata service, never this machine.
      if (address == addresses[2] || address == addresses[3]) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto policy = EgressPolicy::parse({reinterpret_cast<const char*>(data), size});  // NOLINT
  if (!policy.ok()) return 0;
  decide_everything(*policy);
  const EgressPolicy rest = policy->without_expired(std::chrono::system_clock::now());
  decide_everything(rest);
  for (const auto& rule : policy->rules()) {
    if (policy->find_rule(rule.id) != &rule) std::abort();
    if (rest.find_rule(rule.id) == nullptr && !rule.expires) std::abort();
  }
  return 0;
}
