// fs.json (docs/processes.md): parsed once into an immutable policy. Unknown keys are errors.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/policy/fs_rules.h"
#include "fsproxy/overlay/owners.h"

namespace cofferdam::fsproxy {

using overlay::OwnerPolicy;

struct MountPolicy {
  std::string name;
  std::string path;
  std::optional<std::string> lower;
  std::optional<std::string> layer;
  bool writable = false;
  bool record = false;
  bool extended = false;  // extended attributes
  policy::FsRules rules;
};

struct FsPolicy {
  std::string sandbox;
  std::string operation;
  std::string manifest;
  OwnerPolicy owner;
  std::uint64_t quota_bytes = 0;
  std::uint64_t quota_entries = 0;
  std::vector<MountPolicy> mounts;
};

// `names_of` tells how the names of a lower directory compare; without it they are exact.
using NamesOf = std::function<policy::FsRules::Names(const std::string& lower)>;
Result<FsPolicy> parse_fs_policy(std::string_view text, const NamesOf& names_of = {});

}  // namespace cofferdam::fsproxy
