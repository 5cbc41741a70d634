// Hosts, endpoints, rules and whole policies: canonical text is a fixed point.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/policy/address_class.h"
#include "common/policy/egress_policy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace policy = cofferdam::policy;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto host = policy::Host::parse(text)) {
    const auto again = policy::Host::parse(host->text());
    if (!again || *again != *host) __builtin_trap();
    if (!host->is_name()) (void)policy::classify(host->address());
  }
  (void)policy::parse_endpoint(text).ok();
  if (const auto rule = policy::parse_rule(text)) {
    const auto again = policy::parse_rule(policy::to_text(*rule));
    if (!again || policy::to_text(*again) != policy::to_text(*rule)) __builtin_trap();
  }
  (void)policy::parse_deny_rule(text).ok();
  (void)policy::EgressPolicy::parse(text).ok();
  return 0;
}
