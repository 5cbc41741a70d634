// cofferdam-init: fully static, the only program of ours that runs inside a sandbox.
#include <cstdio>
#include <string_view>

#include "orchestrator/init/roles.h"

int main(int argc, char** argv) {
  using namespace cofferdam::init;
  const std::string_view role = argc > 1 ? argv[1] : "";
  const std::string_view option = argc > 2 ? argv[2] : "";
  if (argc == 2 && role == "prepare") return run_prepare();
  if (argc == 2 && role == "pid1") return run_pid1(false);
  if (argc == 3 && role == "pid1" && option == "--self-socket") return run_pid1(true);
  if (argc == 2 && role == "pause") return run_pause();
  if (role == "passthrough") {
    std::fputs("cofferdam-init: passthrough: not in this version\n", stderr);
    return 125;
  }
  std::fputs("usage: cofferdam-init prepare | pid1 [--self-socket] | pause\n", stderr);
  return 125;
}
