// cofferdam-egressproxy: the gate of one sandbox, or of a compose stack.
#include <csignal>
#include <cstdio>

#include "common/log/diagnostics.h"
#include "egressproxy/service.h"

namespace {

int fail(const cofferdam::Error& error) {
  std::fprintf(stderr, "cofferdam-egressproxy: %s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // NOLINT(cert-err33-c)
  cofferdam::log::set_up_diagnostics("cofferdam-egressproxy");
  const auto options = cofferdam::egressproxy::parse_options(argc, argv);
  if (!options) return fail(options.error());
  if (!*options) return 0;
  const cofferdam::Status status = cofferdam::egressproxy::run_service(**options);
  return status.ok() ? 0 : fail(status.error());
}
