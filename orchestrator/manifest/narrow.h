// Narrowing: what a limiting manifest (the organisation's, the user's own) leaves of another. Pure.
//
// A key that the limit does not have limits nothing. What it has, bounds: of lists of rights the
// common part, of numbers the smaller one, of prohibitions both. Nothing is ever added but
// prohibitions.
#pragma once

#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/manifest/manifest.h"

namespace cofferdam::orchestrator {

// A manifest's own keys, as read_manifest_yaml gave them.
struct ManifestLimit {
  Json keys = Json::object();
  std::string source;  // the file
};

// What was taken away is told in manifest->narrowed; its origin becomes the limit's file. Where
// nothing common is left of what cannot be empty (engine, image, tenant, include) it is an error.
Status narrow(Manifest* manifest, const ManifestLimit& limit);

// Whether the limit lets a sandbox have this mode; "" or why not.
std::string mode_fault(const ManifestLimit& limit, std::string_view mode);
// The rule with the budget that the limit leaves it; an error where it does not permit it whole.
Result<NetworkRule> permitted_rule(const ManifestLimit& limit, std::string_view rule);

}  // namespace cofferdam::orchestrator
