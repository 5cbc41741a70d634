// The URL of a package registry, taken apart. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/policy/host_name.h"

namespace cofferdam::orchestrator {

struct RegistryUrl {
  bool tls = true;
  policy::Endpoint endpoint;
  std::string path;  // begins with '/'

  // Without user information, query or fragment; the port only when it is not the scheme's.
  std::string text() const;
  // The egress rule for it: "tls://HOST:PORT".
  std::string rule() const;
};

// http or https only. User information is dropped; errors never show it.
Result<RegistryUrl> parse_registry_url(std::string_view text);

}  // namespace cofferdam::orchestrator
