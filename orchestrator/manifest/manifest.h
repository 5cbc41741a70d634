// Manifest: what a user asks for, effective: defaults, then a manifest file, then the command line.
//
// A value; pure. Each right says where it came from.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/policy/budget.h"

namespace cofferdam::orchestrator {

// One file rule: action `hide`, `readonly`, `writable`.
struct FileRule {
  std::string action;
  std::string pattern;
  std::string source;  // default | template:NAME | manifest | cli
};

struct NetworkRule {
  std::string text;
  std::string source;  // manifest | template:NAME | cli | preset:NAME
  policy::Budget budget = {};
};

struct ExtraMount {
  std::string source;  // absolute, outside
  std::string target;  // absolute, inside
  std::vector<std::string> hide;
  bool cow = false;                 // writable, in a layer of its own that no merge takes home
  bool recursive = false;           // file systems mounted below it too
  bool follow_symlink = false;      // the source may be a link
  std::string classification = {};  // public | internal | confidential | restricted; or not said
};

// A value that named commands get. The value itself is never in a manifest.
struct SecretRule {
  std::string name;  // of the variable, or of the file in /run/secrets
  std::string file;  // one of these three says where it comes from
  std::string env;
  std::vector<std::string> command;  // only in the user's own and the organisation's file
  bool as_file = false;
  std::vector<std::string> commands;  // argv[0] of those that get it, as it is written
};

// Files that a run is to hand out, and what is said of them.
struct ArtifactRule {
  std::vector<std::string> paths;  // gitignore patterns
  std::string owner;
  std::string classification;  // public | internal | confidential | restricted
  std::optional<std::chrono::milliseconds> retention;
};

// A command that runs before the workload's, with rights of its own, in the same sandbox.
struct PhaseRule {
  std::string name;
  std::vector<std::string> command;
  std::optional<std::vector<NetworkRule>> rules;  // none: the network is the manifest's
  std::vector<std::string> presets;               // with rules
  std::map<std::string, std::string> env;
  std::optional<std::chrono::milliseconds> timeout;
  bool stop_on_failure = true;  // else it only warns
};

struct Manifest {
  // Who and what it is for: shown, digested, recorded; no rights.
  std::string tenant;
  std::string task;
  std::string creator;
  std::string policy_version;
  std::string expiry;  // RFC 3339: no run starts after it, and none outlives it; empty: none

  std::string from_template;  // the template that was applied before it; empty: none
  std::string name;           // empty: the sandbox's id
  std::string engine = "native";
  std::string image;               // docker only
  std::string mode = "workspace";  // read-only | workspace | open
  std::vector<std::string> presets;

  std::string workspace;             // empty: found from the current directory
  std::vector<std::string> include;  // only these paths of it exist; empty: all
  std::vector<FileRule> file_rules;  // in order; the last match wins
  std::uint64_t quota_bytes = 10ULL << 30U;
  std::uint64_t quota_entries = 2'000'000;
  bool xattr = false;  // extended attributes in the workspace and HOME
  std::vector<ExtraMount> mounts;

  std::uint64_t tmp_bytes = 1ULL << 30U;
  bool tmp_exec = true;
  std::uint64_t shm_bytes = 64ULL << 20U;

  std::vector<NetworkRule> rules;
  std::vector<NetworkRule> deny;
  std::string network_mode = "enforce";  // enforce | monitor
  policy::Budget budget;                 // of the whole sandbox
  std::string mixed = "drop";
  std::vector<std::string> host_addresses;
  std::vector<std::string> resolver_servers;
  std::chrono::milliseconds resolver_timeout{5000};
  bool hosts_file = false;
  std::vector<std::string> nat64;
  // With the user's password: never shown or stored, see manifest_json().
  std::string upstream_proxy;  // URL; empty: none
  std::string upstream_connect = "address";

  std::string env_inherit = "safe";  // none | safe | explicit
  std::vector<std::string> env_allow;
  std::map<std::string, std::string> env_set;

  std::uint32_t pids = 4096;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> cpus;
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds grace{5000};
  std::optional<std::uint64_t> output_bytes;  // of stdout and stderr together
  std::optional<std::uint64_t> open_files;    // of one process
  std::optional<std::uint64_t> file_size;     // of one file, bytes
  std::string user = "caller";                // caller | root: what the workload sees as its own
  std::vector<std::string> capabilities;      // beyond none, without CAP_
  std::string seccomp = "default";            // default | strict
  std::vector<std::string> executables;       // files and directories inside; empty: everything
  std::optional<std::chrono::milliseconds> life_max;   // from its making on, all its lives together
  std::optional<std::chrono::milliseconds> life_idle;  // -d: without a command
  std::optional<std::chrono::milliseconds> life_keep;  // after its end, from prune
  std::vector<std::string> accept_missing;
  std::vector<ArtifactRule> artifacts;
  std::vector<SecretRule> secrets;
  std::vector<PhaseRule> phases;  // before the command, in order
  Json tools = Json::array();     // as written: checked, digested, shown

  // Where each right came from: a key's dotted path, for an element of a list with "[TEXT]" after
  // it → default | template:NAME | a file | cli. No part of the digest.
  std::map<std::string, std::string> origins;
  // What a limit took away, in words.
  std::vector<std::string> narrowed;
};

// Puts the keys that read_manifest_yaml gave over `manifest`: lists are added to, the rest is
// replaced. `source` goes into each rule, `origin` (empty: the same) into `origins`.
Status apply_manifest(Manifest* manifest, const Json& keys, std::string_view source,
                      std::string_view origin = {});

// The template that `keys` name, over `manifest`; what comes from it says `template:NAME`.
Status apply_template(Manifest* manifest, std::string_view name);

// The defaults of policies/templates/default.yaml.
Result<Manifest> default_manifest();

// Every key with its value: what is stored as manifest.json, shown by `manifest show`, digested.
// The upstream proxy's URL is in it without its user information.
Json manifest_json(const Manifest& manifest);
// "sha256:<hex>" of the canonical JSON.
std::string manifest_digest(const Manifest& manifest);
// What is stored: manifest_json and `origins`.
Json stored_manifest_json(const Manifest& manifest);

}  // namespace cofferdam::orchestrator
