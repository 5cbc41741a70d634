// The network of a sandbox: only `lo`, where every address is local.
#pragma once

#include <netinet/in.h>

#include "common/base/result.h"

namespace cofferdam::init {

// The sandbox's own addresses, one per family: what a connection to any address comes from.
inline constexpr char kOwn4[] = "198.18.255.254";
inline constexpr char kOwn6[] = "fdc0:ffe2:da00::1";

// Whether this kernel has IPv6 at all; without it nothing of IPv6 exists inside.
bool has_ipv6();

// In the caller's network namespace: lo up, own addresses, `local default dev lo src <own>` for
// both families, and every port open to unprivileged programs.
Status set_up_loopback();

}  // namespace cofferdam::init
