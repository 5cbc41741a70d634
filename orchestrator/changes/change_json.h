// Changes as JSON: names are bytes, so a name that is not valid UTF-8 also carries "path_hex".
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

// {"path": …} or {"path": …, "path_hex": …}.
Json path_to_json(std::string_view path);
Result<std::string> path_from_json(const Json& object);

// {"kind", "mode" (octal text), "size", "sha256"}; absent: {"kind": "absent"}.
Json to_json(const ObjectState& state);
Result<ObjectState> state_from_json(const Json& json);

// A change with what is known of a rename; `away` is set.renamed_away().
Json row_of(const ChangeSet& set, const std::map<std::size_t, std::size_t>& away,
            std::size_t index);

// As to_json(set), without its changes.
Json left_out_json(const ChangeSet& set);
Json to_json(const Omission& omission);
Json to_json(const Ignored& ignored);

std::string_view to_text(layer::Kind kind);
std::string octal(std::uint32_t mode);

}  // namespace cofferdam::orchestrator::changes
