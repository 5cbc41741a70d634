// bench-egress-load KIND key=value…: one load, one JSON object on standard output.
#include <cerrno>
#include <csignal>
#include <string>

#include "common/os/sockets.h"
#include "tests/bench/egress/bulk_load.h"
#include "tests/bench/egress/dns_load.h"
#include "tests/bench/egress/event_loop.h"
#include "tests/bench/egress/exchange_load.h"

int main(int argc, char** argv) {
  using namespace cofferdam::bench;  // NOLINT(google-build-using-namespace)
  std::signal(SIGPIPE, SIG_IGN);     // NOLINT(cert-err33-c): sendfile(2) knows no MSG_NOSIGNAL
  (void)cofferdam::os::raise_descriptor_limit();
  const std::string kind = argc > 1 ? argv[1] : "";
  const LoadOptions options(argc > 2 ? argc - 2 : 0, argv + 2);
  if (kind == "tunnels") {
    run_exchanges(tunnel_script(options), options);
  } else if (kind == "gets") {
    run_exchanges(get_script(options), options);
  } else if (kind == "denials") {
    run_exchanges(denial_script(options), options);
  } else if (kind == "hold") {
    hold_open(tunnel_script(options), options);
  } else if (kind == "bulk") {
    run_bulk(options);
  } else if (kind == "dns") {
    run_dns(options);
  } else {
    errno = 0;
    die("usage: bench-egress-load tunnels|gets|denials|hold|bulk|dns key=value…");
  }
  return 0;
}
