#include "orchestrator/manifest/sources.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

#include "common/base/sha256.h"
#include "common/os/files.h"
#include "common/os/regular_file.h"
#include "common/policy/upstream_proxy.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/manifest/read_yaml.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkspaceFile = "cofferdam.yaml";

std::string digest_of(std::string_view bytes) {
  return "sha256:" + to_hex(sha256(bytes));
}

bool is_there(const fs::path& file) {
  std::error_code code;
  return fs::exists(file, code);
}

bool lies_in(const fs::path& path, const fs::path& directory) {
  if (directory.empty()) return false;
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

Result<fs::path> real_path(const fs::path& path) {
  std::error_code code;
  fs::path real = fs::canonical(path, code);
  if (code) return Error::from_errno(path.string(), code.value());
  return real;
}

// The user's or the organisation's file must be theirs alone to write.
Status check_owner(const fs::path& file) {
  struct stat st {};
  if (::stat(file.c_str(), &st) != 0) return Error::from_errno(file.string());
  if (st.st_uid != 0 && st.st_uid != ::geteuid()) {
    return Error(file.string() + ": belongs to another user; refused");
  }
  if ((st.st_mode & 022U) != 0) {
    return Error(file.string() + ": others may write it; refused. Remedy: chmod go-w " +
                 file.string());
  }
  return {};
}

Result<Json> read_trusted(const fs::path& file) {
  if (!is_there(file)) return Json::object();
  TRY_ASSIGN(const std::string text, os::read_file(file, 16U << 20U));
  auto json = parse_json(text);
  if (!json.ok()) return json.error().context(file.string());
  if (!json->is_object()) return Error(file.string() + ": not a map");
  return json;
}

Result<bool> is_trusted(const ManifestPlaces& places, const fs::path& file, std::string_view text) {
  TRY_ASSIGN(const Json trusted, read_trusted(places.trusted));
  const auto found = trusted.find(file.string());
  return found != trusted.end() && found->is_string() && *found == digest_of(text);
}

// A command of a manifest runs outside, with the user's rights: only the user's own file and the
// organisation's may name one.
Status check_commands(const Json& keys) {
  for (const Json& secret : keys.value("secrets", Json::array())) {
    if (!secret.value("from", Json::object()).contains("command")) continue;
    return Error(
        "secrets[].from.command runs outside the sandbox: only your own manifest "
        "(~/.config/cofferdam/manifest.yaml) and the organisation's may have one");
  }
  return {};
}

Result<Manifest> parse_file(const fs::path& file, std::string_view text, bool own = false) {
  TRY_ASSIGN(Manifest manifest, default_manifest());
  TRY_ASSIGN(const Json keys, read_manifest_yaml(text, file.string()));
  if (!own) TRY(check_commands(keys).context(file.string()));
  if (keys.contains("template")) {
    TRY(apply_template(&manifest, keys.at("template").get<std::string>()).context(file.string()));
  }
  const std::string origin = file.string();
  if (Status applied = apply_manifest(&manifest, keys, "manifest", origin); !applied.ok()) {
    return applied.error().context(file.string());
  }
  return manifest;
}

Result<LoadedManifest> load_from(const fs::path& file, std::string_view text, bool own = false) {
  TRY_ASSIGN(Manifest manifest, parse_file(file, text, own));
  return LoadedManifest{std::move(manifest), file.string(), {}};
}

// The workload can read what lies in the workspace.
Status check_no_password(const LoadedManifest& loaded) {
  const std::string& url = loaded.manifest.upstream_proxy;
  if (policy::without_user(url) == url) return {};
  return Error(loaded.source +
               ": network.upstream_proxy.url holds a password, and the workload could read it "
               "there. Remedy: move the manifest out of the workspace");
}

// Whether a link of the workspace decides which file `asked` means: what was approved or written
// for another project, or for the user, would serve this one.
bool leads_out(const fs::path& asked, const fs::path& file, const fs::path& workspace) {
  if (lies_in(file, workspace)) return false;
  const fs::path normal = asked.lexically_normal();
  if (lies_in(normal, workspace)) return true;
  std::error_code code;
  const fs::path directory = fs::canonical(normal.parent_path(), code);
  return !code && lies_in(directory / normal.filename(), workspace);
}

Result<LoadedManifest> load_asked(const ManifestPlaces& places, const fs::path& asked,
                                  const fs::path& workspace) {
  TRY_ASSIGN(const fs::path file, real_path(asked));
  if (leads_out(asked, file, workspace)) {
    return Error(asked.string() + " is a link of the workspace that leads out of it; to use what " +
                 "it leads to, name that: " + file.string());
  }
  TRY_ASSIGN(const std::string text, os::read_regular_file(file, kMaxManifestBytes));
  if (lies_in(file, workspace)) {
    TRY_ASSIGN(const bool trusted, is_trusted(places, file, text));
    if (!trusted) {
      return Error(file.string() +
                   " lies in the workspace and is not trusted. Read it, then: cofferdam manifest "
                   "trust " +
                   file.string());
    }
  }
  TRY_ASSIGN(LoadedManifest loaded, load_from(file, text));
  if (lies_in(file, workspace)) TRY(check_no_password(loaded));
  return loaded;
}

// Nothing where its present content was not approved, where it is no file at all, or where a link
// makes it another file: that one was not approved for this workspace.
Result<std::optional<LoadedManifest>> load_of_workspace(const ManifestPlaces& places,
                                                        const fs::path& own) {
  const auto file = real_path(own);
  if (!file.ok() || *file != own) return std::optional<LoadedManifest>();
  const auto text = os::read_regular_file(*file, kMaxManifestBytes);
  if (!text.ok()) return std::optional<LoadedManifest>();
  TRY_ASSIGN(const bool trusted, is_trusted(places, *file, *text));
  if (!trusted) return std::optional<LoadedManifest>();
  TRY_ASSIGN(LoadedManifest loaded, load_from(*file, *text));
  TRY(check_no_password(loaded));
  return std::optional<LoadedManifest>(std::move(loaded));
}

std::string ignored_note(const fs::path& own) {
  const auto file = real_path(own);
  if (file.ok() && *file != own) {
    return "the workspace's own cofferdam.yaml is a link to " + file->string() +
           " and was ignored; to use that: cofferdam run --manifest " + file->string();
  }
  return "the workspace's own cofferdam.yaml is not trusted and was ignored; to use it, read it, "
         "then: cofferdam manifest trust " +
         own.string();
}

// A file of the user's or the organisation's as what it permits. A template in it counts for what
// it starts, not for what it permits.
Result<std::optional<ManifestLimit>> read_limit(const fs::path& file) {
  if (!is_there(file)) return std::optional<ManifestLimit>();
  TRY(check_owner(file));
  TRY_ASSIGN(const std::string text, os::read_file(file, kMaxManifestBytes));
  TRY_ASSIGN(Json keys, read_manifest_yaml(text, file.string()));
  return std::optional<ManifestLimit>(ManifestLimit{std::move(keys), file.string()});
}

struct Found {
  std::optional<LoadedManifest> loaded;
  std::vector<std::string> notes;
};

// What was asked for, else the workspace's own while it is trusted.
Result<Found> find_manifest(const ManifestPlaces& places, const fs::path& asked,
                            const fs::path& workspace) {
  Found found;
  const fs::path own = workspace / kWorkspaceFile;
  if (is_template(asked)) {
    TRY_ASSIGN(Manifest manifest, load_template(asked.string()));
    found.loaded = LoadedManifest{std::move(manifest), "template " + asked.string(), {}};
  } else if (!asked.empty()) {
    TRY_ASSIGN(found.loaded, load_asked(places, asked, workspace));
  } else if (!workspace.empty() && is_there(own)) {
    TRY_ASSIGN(found.loaded, load_of_workspace(places, own));
    if (!found.loaded) found.notes.push_back(ignored_note(own));
  }
  return found;
}

}  // namespace

Result<ManifestPlaces> manifest_places(const fs::path& state_directory) {
  fs::path config;
  if (const char* set = std::getenv("XDG_CONFIG_HOME"); set != nullptr && set[0] == '/') {
    config = set;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    config = fs::path(home) / ".config";
  } else if (const passwd* entry = ::getpwuid(::geteuid()); entry != nullptr) {
    config = fs::path(entry->pw_dir) / ".config";
  } else {
    return Error("HOME is not set and this user has no home directory");
  }
  return ManifestPlaces{config / "cofferdam" / "manifest.yaml", "/etc/cofferdam/manifest.yaml",
                        state_directory / "trusted_manifests.json"};
}

bool is_template(const fs::path& asked) {
  return !embedded_template(asked.string()).empty();
}

Result<Manifest> load_template(std::string_view name) {
  TRY_ASSIGN(Manifest manifest, default_manifest());
  TRY(apply_template(&manifest, name));
  return manifest;
}

Result<Manifest> load_manifest_file(const fs::path& file) {
  if (is_template(file)) return load_template(file.string());
  TRY_ASSIGN(const std::string text, os::read_file(file, kMaxManifestBytes));
  TRY_ASSIGN(const ManifestPlaces places, manifest_places({}));
  std::error_code code;
  const bool own =
      fs::equivalent(file, places.user, code) || fs::equivalent(file, places.organisation, code);
  return parse_file(file, text, own);
}

Result<std::optional<ManifestLimit>> organisation_limit(const ManifestPlaces& places) {
  return read_limit(places.organisation);
}

Result<LoadedManifest> load_manifest(const ManifestPlaces& places, const fs::path& asked,
                                     const fs::path& workspace) {
  TRY_ASSIGN(const auto own_limit, read_limit(places.user));
  TRY_ASSIGN(auto organisation, read_limit(places.organisation));
  TRY_ASSIGN(Found found, find_manifest(places, asked, workspace));
  std::optional<LoadedManifest>& loaded = found.loaded;
  if (loaded && own_limit) {
    TRY(narrow(&loaded->manifest, *own_limit));
  } else if (!loaded && (own_limit || organisation)) {
    const fs::path& file = own_limit ? places.user : places.organisation;
    TRY_ASSIGN(const std::string text, os::read_file(file, kMaxManifestBytes));
    TRY_ASSIGN(loaded, load_from(file, text, true));
  } else if (!loaded) {
    TRY_ASSIGN(Manifest manifest, default_manifest());
    loaded = LoadedManifest{std::move(manifest), "defaults", {}};
  }
  loaded->notes = std::move(found.notes);
  loaded->organisation = std::move(organisation);
  return std::move(*loaded);
}

Result<std::string> trust_manifest(const ManifestPlaces& places, const fs::path& file) {
  TRY_ASSIGN(const fs::path real, real_path(file));
  TRY_ASSIGN(const std::string text, os::read_regular_file(real, kMaxManifestBytes));
  TRY_ASSIGN(const Manifest checked, parse_file(real, text));
  (void)checked;
  TRY_ASSIGN(Json trusted, read_trusted(places.trusted));
  std::string digest = digest_of(text);
  trusted[real.string()] = digest;
  TRY(os::write_file_atomic(places.trusted, trusted.dump(2) + "\n"));
  return digest;
}

}  // namespace cofferdam::orchestrator
