// A sandbox's own manifest, read back from what is stored of it, and compared with a limit of
// today. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/manifest/manifest.h"
#include "orchestrator/manifest/narrow.h"

namespace cofferdam::orchestrator {

// manifest_json() of the result is `stored` without its origins; the upstream proxy has no user.
Result<Manifest> parse_stored_manifest(const Json& stored);

// What the limit would take away or add to it, in words; empty: it permits all of it.
Result<std::vector<std::string>> beyond_limit(const Manifest& manifest, const ManifestLimit& limit);

}  // namespace cofferdam::orchestrator
