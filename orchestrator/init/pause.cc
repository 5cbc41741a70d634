// Role pause: the whole image of the docker engine's network container.
#include <signal.h>
#include <sys/wait.h>

#include <initializer_list>

#include "orchestrator/init/roles.h"

namespace cofferdam::init {

int run_pause() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&wanted, number);
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  for (;;) {
    int number = 0;
    if (::sigwait(&wanted, &number) != 0) continue;
    if (number != SIGCHLD) return 0;
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

}  // namespace cofferdam::init
