// Go: its module proxies and checksum database, as GOPROXY and GOSUMDB name them. Pure. The go
// command itself is not asked: it would fetch and run the toolchain that a module names.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

// NAME=value lines of `go env -w`'s file and of GOROOT/go.env.
std::map<std::string, std::string> parse_go_env(std::string_view text);

// `values` are the effective GOPROXY, GOSUMDB, GOPRIVATE, GONOPROXY and GONOSUMDB.
Result<PresetResult> go_preset(const std::map<std::string, std::string>& values,
                               const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
