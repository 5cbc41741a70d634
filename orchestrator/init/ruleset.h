// The nftables rules of a sandbox's network namespace (DESIGN, "The preparer, the gate and the
// launcher"): `steer` leads DNS and TCP to the gate, `guard` lets nothing else out.
#pragma once

#include "common/base/result.h"
#include "orchestrator/init/netlink.h"

namespace cofferdam::init {

// Table inet cofferdam as one transaction. Pure.
NetlinkBatch make_ruleset();

// Loads it into the caller's network namespace.
Status load_ruleset();

}  // namespace cofferdam::init
