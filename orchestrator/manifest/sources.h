// Where a manifest may come from, and which files of a workspace the user has approved.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/manifest/manifest.h"
#include "orchestrator/manifest/narrow.h"

namespace cofferdam::orchestrator {

// The directories that count, gathered once from the surroundings.
struct ManifestPlaces {
  std::filesystem::path user;          // ${XDG_CONFIG_HOME:-~/.config}/cofferdam/manifest.yaml
  std::filesystem::path organisation;  // /etc/cofferdam/manifest.yaml
  std::filesystem::path trusted;       // approved digests, in the state directory
};
Result<ManifestPlaces> manifest_places(const std::filesystem::path& state_directory);

struct LoadedManifest {
  Manifest manifest;
  std::string source;              // "defaults", or the file's path
  std::vector<std::string> notes;  // for people
  std::optional<ManifestLimit> organisation = {};
};

// Whether it is a bare word that names a template of policies/templates; a file of that name is
// meant by ./NAME.
bool is_template(const std::filesystem::path& asked);
Result<Manifest> load_template(std::string_view name);  // over the defaults

// `asked` (--manifest: a template or a file; empty: none), else the workspace's own cofferdam.yaml
// when it is trusted, else the user's, else the organisation's, else the defaults. A file that lies
// in the workspace is refused (asked for) or skipped with a note (found there) unless its digest
// was approved; a file that others may write is refused. What was asked for, or found in the
// workspace, is narrowed by the user's own file. The organisation's limit is only returned: it
// bounds the command line too, so that the caller applies it last.
Result<LoadedManifest> load_manifest(const ManifestPlaces& places,
                                     const std::filesystem::path& asked,
                                     const std::filesystem::path& workspace);

// The organisation's limit; nothing where there is none.
Result<std::optional<ManifestLimit>> organisation_limit(const ManifestPlaces& places);

// One file or template by its own: defaults and its keys over them.
Result<Manifest> load_manifest_file(const std::filesystem::path& file);

// Approves the file's present bytes: "sha256:<hex>" of them.
Result<std::string> trust_manifest(const ManifestPlaces& places, const std::filesystem::path& file);

}  // namespace cofferdam::orchestrator
