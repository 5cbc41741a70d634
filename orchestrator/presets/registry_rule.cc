#include <algorithm>

#include "common/policy/address_class.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

Status add_registry(const RegistryUrl& url, std::string_view what, const ResolveHost& resolve,
                    PresetResult* result, std::string_view origin) {
  const policy::Host& host = url.endpoint.host;
  std::vector<policy::IpAddress> addresses;
  std::string note;
  if (host.is_name()) {
    auto found = resolve(host.name());
    if (found.ok()) {
      addresses = std::move(found).value();
    } else {
      note = " (does not resolve now: " + found.error().message() + ")";
    }
  } else {
    addresses.push_back(host.address());
  }
  std::string opened;
  for (const policy::IpAddress& address : addresses) {
    const policy::AddressClass kind = policy::classify(address);
    if (kind.tier == policy::Tier::kFloor) {
      return Error("preset " + result->name + ": " + host.text() + " resolves to " +
                   address.to_text() + " (" + std::string(kind.what) +
                   "), which no rule can open; name another registry in your own configuration");
    }
    if (kind.tier == policy::Tier::kPublic) continue;
    opened += (opened.empty() ? "" : ",") + address.to_text() + (address.is_v4() ? "/32" : "/128");
  }
  std::string rule = url.rule();
  if (!opened.empty()) rule += "=" + opened;
  if (std::find(result->rules.begin(), result->rules.end(), rule) != result->rules.end()) return {};
  result->rules.push_back(rule);
  result->lines.push_back({"preset", result->name + ": " + std::string(what) + " is " +
                                         url.endpoint.text() + ", " + std::string(origin) + note});
  if (!opened.empty()) {
    result->lines.push_back({"preset", result->name + ": " + host.text() +
                                           " is not at a public address; exactly these are opened "
                                           "for it: " +
                                           opened});
  }
  return {};
}

}  // namespace cofferdam::orchestrator
