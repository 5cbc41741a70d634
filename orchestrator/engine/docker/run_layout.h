// Where a sandbox's mounts and files lie on the host for the Docker daemon to bind. Pure.
#pragma once

#include <string>

namespace cofferdam::orchestrator::docker {

inline constexpr char kRunRoot[] = "/run/cofferdam";

struct RunLayout {
  std::string directory;  // /run/cofferdam/<id>

  explicit RunLayout(const std::string& sandbox_id)
      : directory(std::string(kRunRoot) + "/" + sandbox_id) {}

  std::string init() const { return directory + "/init"; }
  std::string token() const { return directory + "/token"; }
  std::string file(std::size_t number) const {
    return directory + "/files/" + std::to_string(number);
  }
  std::string mount(const std::string& name) const { return directory + "/mounts/" + name; }
};

}  // namespace cofferdam::orchestrator::docker
