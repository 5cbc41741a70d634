// The keys of manifest v1: one table that the reader obeys and that the published schema must
// agree with (a test compares them).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace cofferdam::orchestrator {

// What a value may be, and how it is checked where it stands.
enum class Shape : std::uint8_t {
  kMap,
  kMapList,
  kEnum,    // one of `values`, separated by |
  kLabel,   // at most 128 bytes without control characters
  kTime,    // RFC 3339 in UTC
  kName,    // a sandbox's name
  kString,  // not empty, no control characters
  kPath,    // absolute, normal form
  kPathList,
  kGlobList,      // gitignore patterns
  kRuleList,      // egress rules, each as text or as a map of keys
  kRule,          // one, as text
  kDenyList,      // egress rules of the deny list
  kAddressList,   // IP addresses and ranges
  kServerList,    // IP addresses, also with :PORT
  kNat64List,     // prefixes of RFC 6052
  kProxyUrl,      // http://[USER:PASSWORD@]HOST:PORT
  kVariableName,  // of an environment variable
  kVariableList,  // names of environment variables
  kWordList,      // texts without control characters
  kIncludeList,   // paths below the workspace; wildcards in the last part only
  kVariableMap,   // name → value
  kEnumList,
  kSize,
  kDuration,
  kCount,
  kNumber,
  kBool,
  kLater,  // a key of manifest v1 that this version refuses
};

struct KeySpec {
  std::string_view path;  // dotted; a list's element is "[]": mounts[].source
  Shape shape;
  std::string_view values = {};  // kEnum, kEnumList; a value in parentheses is refused as later
};

std::span<const KeySpec> manifest_keys();

// Nothing where the manifest has no such key.
const KeySpec* find_key(std::string_view path);

}  // namespace cofferdam::orchestrator
