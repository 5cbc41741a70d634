#include "orchestrator/probe/probe.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace probe {

int escaped(const std::string& detail) {
  std::printf("ESCAPED: %s\n", detail.c_str());
  return kEscaped;
}

int blocked(const std::string& detail) {
  std::printf("blocked: %s\n", detail.c_str());
  return kBlocked;
}

int unusable(const std::string& detail) {
  std::printf("unusable: %s\n", detail.c_str());
  return kUnusable;
}

int blocked_by_errno(const std::string& call) {
  return blocked(call + ": " + std::strerror(errno));
}

}  // namespace probe

int main(int argc, char** argv) {
  if (argc < 2) return probe::kUnusable;
  if (argc == 3 && std::strcmp(argv[1], "battery") == 0) {
    return probe::run_battery(argv[0], argv[2]);
  }
  const probe::Arguments arguments(argv + 2, argv + argc);
  for (const probe::Attempt* list :
       {probe::kFileAttempts, probe::kProcessAttempts, probe::kNetworkAttempts,
        probe::kKernelAttempts, probe::kLifecycleAttempts}) {
    for (; list->name != nullptr; ++list) {
      if (std::strcmp(list->name, argv[1]) == 0) return list->run(arguments);
    }
  }
  return probe::unusable(std::string("no such attempt: ") + argv[1]);
}
