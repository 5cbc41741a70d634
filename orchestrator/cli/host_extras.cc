// What `doctor` asks this machine besides what a run needs.
#include <charconv>

#include "common/os/files.h"
#include "common/os/layer_probes.h"
#include "common/os/process.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/daemon_address.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/host_catalogue.h"

namespace cofferdam::orchestrator {
namespace {

Probe probe_of(const Status& tried) {
  return tried.ok() ? Probe{true, ""} : Probe{false, tried.error().message()};
}

std::uint64_t number_in(const std::filesystem::path& file) {
  const auto text = os::read_file(file, 4096);
  std::uint64_t value = 0;
  if (text.ok()) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

// Which way the bytes of large files go: fsproxy says it of itself.
Probe ask_passthrough() {
  constexpr std::string_view kLine = "\npassthrough: ";
  const auto program = find_own_program("cofferdam-fsproxy");
  if (!program.ok()) return {false, program.error().message()};
  os::SpawnOptions options;
  options.argv = {program->string(), "--version"};
  options.env = std::vector<std::string>{};
  const auto output = os::run_command(std::move(options), std::chrono::seconds(10));
  const std::size_t at = output.ok() ? output->out.find(kLine) : std::string::npos;
  if (at == std::string::npos) return {false, "cofferdam-fsproxy does not say"};
  std::string said = output->out.substr(at + kLine.size());
  said = said.substr(0, said.find('\n'));
  return {said == "yes", said};
}

std::vector<std::string> ask_runtimes() {
  const auto socket = docker::own_daemon_address();
  if (!socket.ok()) return {};
  const auto client = docker::DockerClient::connect(*socket);
  if (!client.ok()) return {};
  auto runtimes = client->runtimes();
  return runtimes.ok() ? std::move(runtimes).value() : std::vector<std::string>();
}

}  // namespace

HostExtras gather_host_extras(const std::filesystem::path& state, const HostFacts& facts) {
  HostExtras extras;
  extras.whiteouts = probe_of(os::try_whiteout(state));
  extras.attributes = probe_of(os::try_attribute(state));
  extras.reflink = probe_of(os::try_reflink(state));
  extras.inotify_watches = number_in("/proc/sys/fs/inotify/max_user_watches");
  extras.inotify_instances = number_in("/proc/sys/fs/inotify/max_user_instances");
  if (facts.docker.daemon.works) extras.runtimes = ask_runtimes();
  extras.passthrough = ask_passthrough();
  const auto reader = find_own_program("cofferdam-reader");
  extras.reader = {reader.ok(), reader.ok() ? reader->string() : reader.error().message()};
  return extras;
}

}  // namespace cofferdam::orchestrator
