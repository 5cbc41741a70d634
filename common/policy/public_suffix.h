// Public suffixes: names under which anybody can register, so that a wildcard over one of them
// would allow everybody. Two lists, either of which is enough: the public suffix list that libpsl
// carries, and policies/public_suffixes.txt, compiled in, so that the usual ones never depend on
// how a distribution built the library. Pure.
#pragma once

#include <string_view>

#include "common/policy/host_name.h"

namespace cofferdam::policy {

// A single label always is one.
bool is_public_suffix(const HostName& name);

// The day of the compiled-in list, "YYYY-MM-DD".
std::string_view public_suffix_date();

}  // namespace cofferdam::policy
