#include "orchestrator/engine/docker/remains.h"

#include "common/base/sha256.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/daemon_address.h"

namespace cofferdam::orchestrator::docker {

std::string instance_of(const SandboxRecord& record) {
  constexpr std::size_t kDigits = 16;
  return to_hex(sha256(record.directory.parent_path().string())).substr(0, kDigits);
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

}  // namespace cofferdam::orchestrator::docker
