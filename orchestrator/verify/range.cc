#include "orchestrator/verify/range.h"

#include <cstdlib>

#include "common/os/sockets.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/event_reader.h"

namespace cofferdam::orchestrator::verify {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVictim = "outside";

Status put(const fs::path& path, std::string_view text) {
  TRY(os::make_directories(path.parent_path(), 0755));
  return os::write_file_atomic(path, text);
}

// Only what finding the user's own configuration and daemon needs; and a token that must not get
// inside.
std::vector<std::string> environment(const Range& range) {
  std::vector<std::string> env = {"HOME=" + range.home().string(),
                                  "XDG_STATE_HOME=" + range.state().string(),
                                  std::string(Range::kHostToken) + "=host-token-of-verify",
                                  "GITHUB_TOKEN=host-token-of-verify", "LANG=C.UTF-8"};
  for (const char* name : {"PATH", "DOCKER_HOST", "XDG_RUNTIME_DIR"}) {
    if (const char* value = std::getenv(name)) env.push_back(std::string(name) + "=" + value);
  }
  std::string config;
  if (const char* own = std::getenv("XDG_CONFIG_HOME")) {
    config = own;
  } else if (const char* home = std::getenv("HOME")) {
    config = std::string(home) + "/.config";
  }
  if (!config.empty()) env.push_back("XDG_CONFIG_HOME=" + config);
  return env;
}

}  // namespace

Result<Range> Range::create() {
  std::error_code code;
  fs::path parent = fs::canonical(fs::temp_directory_path(code), code);
  if (code) parent = "/tmp";
  TRY_ASSIGN(os::TempDir root, os::TempDir::create(parent, kRangePrefix));
  Range range(std::move(root));
  const fs::path ws = range.workspace();
  const std::pair<fs::path, const char*> bait[] = {
      {ws / ".env", "SECRET=1\n"},
      {ws / ".env.example", "SECRET=\n"},
      {ws / "src/main.c", "int main;\n"},
      {ws / "id_rsa", "KEY\n"},
      {ws / "README", "readme\n"},
      {ws / ".git/HEAD", "ref: refs/heads/main\n"},
      {ws / ".git/config", "[core]\n"},
      {ws / ".git/hooks/sample", "\n"},
      {ws / ".git/objects/none", "\n"},
      {ws / ".git/refs/none", "\n"},
      {range.outside() / "victim", kVictim},
      {range.home() / ".ssh/id_ed25519", "PRIVATE KEY\n"},
      {range.home() / ".aws/credentials", "aws\n"}};
  for (const auto& [path, text] : bait) TRY(put(path, text));
  TRY(os::make_directories(range.state()));
  TRY_ASSIGN(const auto probe, find_own_program("cofferdam-probe"));
  fs::copy_file(probe, ws / "probe", code);
  if (code) return Error::from_errno((ws / "probe").string(), code.value());
  TRY_ASSIGN(os::UniqueFd socket, os::listen_unix(ws, "host.sock"));
  range.sockets_.push_back(std::move(socket));
  return range;
}

bool Range::outside_is_untouched() const {
  const auto text = os::read_file(outside() / "victim");
  std::error_code code;
  return text.ok() && *text == kVictim && !fs::exists(outside() / "new", code) &&
         !fs::exists(root_.path() / "new", code);
}

Result<RunDone> Range::run(const std::vector<std::string>& flags,
                           const std::vector<std::string>& command,
                           std::chrono::milliseconds timeout) const {
  std::error_code code;
  const fs::path self = fs::read_symlink("/proc/self/exe", code);
  if (code) return Error::from_errno("/proc/self/exe", code.value());
  os::SpawnOptions options;
  options.argv = {self.string(), "run", "--json", "--workspace", workspace().string()};
  options.argv.insert(options.argv.end(), flags.begin(), flags.end());
  options.argv.emplace_back("--");
  options.argv.insert(options.argv.end(), command.begin(), command.end());
  options.env = environment(*this);
  options.directory = workspace().string();
  options.die_with_parent = true;
  TRY_ASSIGN(os::CommandOutput done, os::run_command(options, timeout));
  RunDone run{done.status.shell_status(), std::move(done.out), std::move(done.err), {}};
  // The summary: one line of JSON on stderr.
  auto begin = run.err.rfind("\n{");
  if (begin != std::string::npos) ++begin;
  if (run.err.starts_with("{")) begin = 0;
  const auto summary = begin == std::string::npos
                           ? Result<Json>(Error("no summary"))
                           : parse_json(run.err.substr(begin, run.err.find('\n', begin) - begin));
  if (!summary.ok() || !summary->is_object() || !summary->contains("sandbox")) return run;
  const fs::path directory =
      state() / "cofferdam/sandboxes" / (*summary)["sandbox"].get<std::string>();
  const auto read = for_each_event(directory / "events.jsonl", 0,
                                   [&](const Json& event) { run.events.push_back(event); });
  if (!read.ok()) return read.error();
  return run;
}

}  // namespace cofferdam::orchestrator::verify
