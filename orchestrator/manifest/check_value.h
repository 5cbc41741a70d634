// One value of a manifest or of the command line, checked where it stands. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/manifest/keys.h"

namespace cofferdam::orchestrator {

// `text` as the JSON that the key's shape asks for (of one element, for lists), or what is wrong.
Result<Json> check_value(const KeySpec& key, std::string_view text);

// What is wrong with a variable that is to be set inside; nothing when it is fine. Proxy variables
// are refused: the gate is transparent and a proxy variable would point past it.
std::optional<std::string> variable_fault(std::string_view name, std::string_view value);

// What is wrong with a file pattern (gitignore syntax), or nothing.
std::optional<std::string> glob_fault(std::string_view pattern);

// What is wrong with an entry of workspace.include, or nothing.
std::optional<std::string> include_fault(std::string_view path);

// What is wrong with an egress rule, or with an entry of the deny list; or nothing.
std::optional<std::string> rule_fault(std::string_view rule);
std::optional<std::string> deny_rule_fault(std::string_view rule);

}  // namespace cofferdam::orchestrator
