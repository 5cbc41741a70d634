#include "orchestrator/engine/docker/remains.h"

#include <algorithm>
#include <filesystem>

#include "common/base/sha256.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/daemon_address.h"

namespace cofferdam::orchestrator::docker {

namespace {

std::string instance_of_root(const std::filesystem::path& root) {
  constexpr std::size_t kDigits = 16;
  return to_hex(sha256(root.string())).substr(0, kDigits);
}

}  // namespace

std::string instance_of(const SandboxRecord& record) {
  return instance_of_root(record.directory.parent_path());
}

Status remove_owned_container(const SandboxRecord& record, const std::string& name) {
  std::string socket;
  const auto recorded = record.resources.find("docker");
  if (recorded != record.resources.end() && recorded->is_string()) {
    socket = recorded->get<std::string>();
  } else {
    TRY_ASSIGN(socket, own_daemon_address());
  }
  TRY_ASSIGN(const DockerClient client, DockerClient::connect(socket));
  const auto inspect = client.inspect_container(name);
  if (!inspect.ok()) {
    if (inspect.error().error_number() == ENOENT) return {};
    return inspect.error();
  }
  try {
    const Json& labels = inspect->at("Config").at("Labels");
    if (labels.at(kSandboxLabel) != record.id || labels.at(kInstanceLabel) != instance_of(record)) {
      return Error("container " + name + " belongs to another sandbox");
    }
    return client.remove_container(inspect->at("Id").get<std::string>());
  } catch (const Json::exception&) {
    return Error("container " + name + " is not one of ours: it has no labels");
  }
}

Result<std::vector<std::string>> remove_stray_containers(const SandboxStore& store) {
  std::vector<std::string> removed;
  const auto socket = own_daemon_address();
  if (!socket.ok()) return removed;
  const auto client = DockerClient::connect(*socket);
  if (!client.ok()) return removed;
  TRY_ASSIGN(const auto containers,
             client->list_containers({{kInstanceLabel, instance_of_root(store.root())}}));
  if (containers.empty()) return removed;
  // Listed after the containers: a sandbox is recorded before it has any.
  TRY_ASSIGN(const std::vector<SandboxRecord> records, store.list());
  for (const ContainerEntry& entry : containers) {
    const auto sandbox = entry.labels.find(kSandboxLabel);
    const bool alive =
        std::any_of(records.begin(), records.end(), [&](const SandboxRecord& record) {
          return sandbox != entry.labels.end() && record.id == sandbox->second &&
                 !record.ended_for_good();
        });
    if (alive) continue;
    TRY(client->remove_container(entry.id));
    removed.push_back(entry.names.empty() ? entry.id : entry.names.front());
  }
  return removed;
}

}  // namespace cofferdam::orchestrator::docker
