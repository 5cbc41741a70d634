// The pause container's image: cofferdam-init and nothing else.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/result.h"
#include "orchestrator/engine/docker/client.h"

namespace cofferdam::orchestrator::docker {

struct PauseImage {
  std::string id;
  std::string program_digest;  // sha256 of the init in it, hexadecimal
};

// The image made from `program`, imported where this daemon does not have it yet. It is tagged and
// labelled with the program's digest, so each build of the init has its own.
Result<PauseImage> find_or_import_pause_image(const DockerClient& client,
                                              const std::filesystem::path& program);

}  // namespace cofferdam::orchestrator::docker
