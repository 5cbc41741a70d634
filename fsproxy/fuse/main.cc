// cofferdam-fsproxy: serves the FUSE mounts of one sandbox (docs/processes.md).
#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/log/diagnostics.h"
#include "common/os/files.h"
#include "fsproxy/fuse/backing_helper.h"
#include "fsproxy/fuse/service.h"

namespace {

using cofferdam::os::UniqueFd;

void block_sigterm() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

int fail(UniqueFd ready, const std::string& why) {
  std::fprintf(stderr, "cofferdam-fsproxy: %s\n", why.c_str());
  if (ready) (void)cofferdam::os::write_all(ready.get(), "error: " + why + "\n").ok();
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  cofferdam::log::set_up_diagnostics("cofferdam-fsproxy");
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") {
    const cofferdam::Status passthrough = cofferdam::fsproxy::BackingHelper::possible();
    std::printf("cofferdam-fsproxy %s\nlibfuse %s\npassthrough: %s\n", COFFERDAM_VERSION,
                fuse_pkgversion(),
                passthrough.ok() ? "yes" : passthrough.error().message().c_str());
    return 0;
  }
  signal(SIGPIPE, SIG_IGN);
  block_sigterm();
  const auto arguments = cofferdam::fsproxy::parse_arguments(args);
  if (!arguments.ok()) return fail(UniqueFd(), arguments.error().message());
  UniqueFd ready(arguments->ready_fd);
  auto service = cofferdam::fsproxy::Service::create(*arguments);
  if (!service.ok()) return fail(std::move(ready), service.error().message());
  if (!cofferdam::os::write_all(ready.get(), "ready\n").ok()) {
    return fail(UniqueFd(), "nobody waits for us");
  }
  ready.reset();
  (*service)->run();
  return 0;
}
