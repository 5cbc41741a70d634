// What one egress rule permits of another. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/manifest/manifest.h"

namespace cofferdam::orchestrator {

// Whether everything that `rule` lets through is let through by `limit` too: protocol, port, host,
// and every range that it opens. Texts that are no rules cover nothing.
bool covers(std::string_view limit, std::string_view rule);

// The rule as far as the limits go: itself where one covers it, else those limits that it covers,
// with the smaller budgets; nothing where they have nothing in common.
std::vector<NetworkRule> within(const NetworkRule& rule, const std::vector<NetworkRule>& limits);

// The smaller of each.
policy::Budget smaller(const policy::Budget& a, const policy::Budget& b);

}  // namespace cofferdam::orchestrator
