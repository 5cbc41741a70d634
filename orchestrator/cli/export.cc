#include "orchestrator/changes/export.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "common/base/escape.h"
#include "common/os/files.h"
#include "orchestrator/changes/artifacts.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/review.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string selector;
  std::string file;
  std::string artifacts;
};

// git refuses a patch above this (apply.c, MAX_APPLY_SIZE).
constexpr std::uint64_t kMaxApplyBytes = 1023ULL << 20U;

// Secrets in names are redacted, all at once: there may be many lines.
void tell(const SandboxRecord& sandbox, const changes::ExportReport& report) {
  std::string text;
  const auto add = [&](const std::string& line) {
    text += "cofferdam: " + escape_for_terminal(line) + "\n";
  };
  for (const auto& omission : report.not_in_patch) {
    add("not in the patch: " + omission.path + ": " + omission.detail);
  }
  for (const auto& [path, what] : report.secrets) {
    add("the patch holds a secret as it is: " + path + ": " + what);
  }
  for (const auto& omission : report.omissions) {
    add("left out: " + omission.path + ": " + omission.detail + " (" + omission.reason + ")");
  }
  for (const auto& ignored : report.ignored) {
    add("ignored by your rules: " + ignored.path + " (" + std::to_string(ignored.entries) +
        (ignored.entries == 1 ? " object)" : " objects)"));
  }
  if (report.patch_bytes > kMaxApplyBytes) {
    add("the patch is larger than git apply takes (1023 MiB): cofferdam merge has no such limit");
  }
  if (!text.empty()) (void)show(sandbox, text, stderr);
}

// A patch of many small pieces in few writes.
class Buffered final {
 public:
  explicit Buffered(int fd) : fd_(fd) {}
  Status write(std::string_view bytes) {
    constexpr std::size_t kFull = 256U << 10U;
    pending_ += bytes;
    return pending_.size() < kFull ? Status() : flush();
  }
  Status flush() {
    const Status written = os::write_all(fd_, pending_);
    pending_.clear();
    return written;
  }

 private:
  int fd_;
  std::string pending_;
};

Result<changes::ExportReport> export_to(int fd, const SandboxRecord& sandbox) {
  Buffered out(fd);
  auto report =
      changes::export_patch(sandbox, [&](std::string_view bytes) { return out.write(bytes); });
  if (const Status written = out.flush(); report.ok() && !written.ok()) return written.error();
  return report;
}

// `file` as `write` fills it: whole, or not there.
Status write_whole(const std::string& file, const std::function<Status(int fd)>& write) {
  const std::string part = file + ".part";
  TRY_ASSIGN(const os::UniqueFd fd, os::open_file(part, O_WRONLY | O_CREAT | O_EXCL, 0644));
  Status done = write(fd.get());
  if (done.ok() && ::rename(part.c_str(), file.c_str()) != 0) {
    done = Error::from_errno("rename " + part);
  }
  if (!done.ok()) ::unlink(part.c_str());
  return done;
}

Status write_manifest(const std::string& file, const Json& manifest) {
  const std::string text = printable_json(manifest, 2) + "\n";
  return write_whole(file + ".json", [&](int fd) { return os::write_all(fd, text); });
}

Result<changes::ExportReport> export_to_file(const SandboxRecord& sandbox,
                                             const std::string& file) {
  changes::ExportReport report;
  TRY(write_whole(file, [&](int fd) -> Status {
    TRY_ASSIGN(report, export_to(fd, sandbox));
    return {};
  }));
  TRY(write_manifest(file, report.manifest));
  return report;
}

Result<changes::ArtifactReport> write_artifacts(const SandboxRecord& sandbox,
                                                const std::string& file) {
  changes::ArtifactReport report;
  TRY(write_whole(file, [&](int fd) -> Status {
    Buffered out(fd);
    TRY_ASSIGN(report, changes::export_artifacts(
                           sandbox, [&](std::string_view bytes) { return out.write(bytes); }));
    return out.flush();
  }));
  TRY(write_manifest(file, report.manifest));
  return report;
}

int export_artifacts(const SandboxRecord& sandbox, const std::string& file) {
  const auto report = write_artifacts(sandbox, file);
  if (!report.ok()) return fail(report.error());
  for (const auto& omission : report->omissions) {
    note_of(sandbox,
            "left out: " + omission.path + ": " + omission.detail + " (" + omission.reason + ")");
  }
  for (const std::string& pattern : report->unmatched) note("nothing matches " + pattern);
  note(std::to_string(report->files) + (report->files == 1 ? " artifact in " : " artifacts in ") +
       file + ", described in " + file + ".json");
  return 0;
}

int export_changes(const Context& context, const Options& options) {
  const auto sandbox = find_sandbox(context, options.selector);
  if (!sandbox.ok()) return fail(sandbox.error());
  // It is for programs: nothing in it is escaped or redacted.
  if (options.file.empty() && options.artifacts.empty() && ::isatty(STDOUT_FILENO) != 0) {
    (void)fail("a patch is not for a terminal: -o FILE, or cofferdam diff to read it");
    return kExitUsage;
  }
  warn_if_running(*sandbox);
  warn_of_unknown_secrets(*sandbox);
  if (!options.artifacts.empty()) return export_artifacts(*sandbox, options.artifacts);
  const auto report = options.file.empty() ? export_to(STDOUT_FILENO, *sandbox)
                                           : export_to_file(*sandbox, options.file);
  if (!report.ok()) return fail(report.error());
  tell(*sandbox, *report);
  if (report->exported == 0) note("nothing to export");
  if (!options.file.empty()) {
    note(std::to_string(report->exported) + (report->exported == 1 ? " change" : " changes") +
         " in " + options.file + ": git apply --binary " + options.file);
  }
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("export", "Write a patch for git apply --binary, byte exact");
  command->add_option("S", options->selector, "Sandbox: id, name or last")->required();
  auto* artifacts = command->add_option(
      "--artifacts", options->artifacts,
      "Instead: what the manifest's `artifacts` name, as a tar, described in FILE.json");
  artifacts->type_name("FILE");
  auto* output = command->add_option(
      "-o,--output", options->file,
      "Into FILE, with every change and omission in FILE.json (default: stdout)");
  output->excludes(artifacts);
  command->callback([&context, options] {
    context.action = [&context, options] { return export_changes(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
