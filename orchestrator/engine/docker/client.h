// DockerClient: the few calls of the Docker Engine API that a sandbox needs, typed.
//
// https://docs.docker.com/reference/api/engine/ version 1.41 (Docker 20.10) or the oldest that a
// newer daemon still speaks. Every call blocks, with a deadline. An error carries the daemon's own
// message; its errno is ENOENT when the object does not exist.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/engine/docker/http_exchange.h"

namespace cofferdam::orchestrator::docker {

// What an image brings with it.
struct ImageFacts {
  std::string id;  // sha256:…
  std::vector<std::string> volumes;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> labels;
};

struct ContainerEntry {
  std::string id;
  std::vector<std::string> names;  // without the leading slash
  std::map<std::string, std::string> labels;
};

class DockerClient final {
 public:
  // Asks the daemon for its version; an older one than 20.10 is an error.
  static Result<DockerClient> connect(const std::string& socket_path, int interrupt = -1);

  const std::string& socket_path() const { return socket_path_; }
  const std::string& server_version() const { return server_version_; }

  Result<ImageFacts> inspect_image(std::string_view reference) const;
  // An image whose layer is `tar`, tagged `repository:tag`, with Dockerfile instructions.
  Status import_image(std::string tar, std::string_view repository, std::string_view tag,
                      const std::vector<std::string>& changes) const;

  // The new container's id.
  Result<std::string> create_container(std::string_view name, const Json& request) const;
  Status start_container(std::string_view id) const;
  Result<Json> inspect_container(std::string_view id) const;
  // Kills it first; its anonymous volumes go with it. One that does not exist is fine.
  Status remove_container(std::string_view id) const;
  // Running or not, with all of these labels.
  Result<std::vector<ContainerEntry>> list_containers(
      const std::map<std::string, std::string>& labels) const;

  // The names of the OCI runtimes that the daemon knows.
  Result<std::vector<std::string>> runtimes() const;

  // For what must still be done after the user interrupted the run.
  void ignore_interrupt() { interrupt_ = -1; }

 private:
  DockerClient(std::string socket_path, int interrupt)
      : socket_path_(std::move(socket_path)), interrupt_(interrupt) {}
  Result<HttpReply> ask(HttpCall call, std::chrono::milliseconds deadline) const;
  Result<Json> ask_json(HttpCall call) const;

  std::string socket_path_;
  int interrupt_ = -1;
  std::string prefix_;  // "/v1.41"
  std::string server_version_;
};

// Pure. The API version to speak, "1.41" or newer, from the daemon's answer to GET /version.
Result<std::string> choose_api_version(const Json& version);
// Pure. From the answer to an image's inspection.
Result<ImageFacts> parse_image(const Json& inspect);
// Pure. RFC 3986: everything but unreserved characters is encoded.
std::string percent_encode(std::string_view text);

}  // namespace cofferdam::orchestrator::docker
