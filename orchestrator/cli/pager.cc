#include "orchestrator/cli/pager.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/os/files.h"
#include "common/os/pipes.h"
#include "common/os/terminal.h"

namespace cofferdam::orchestrator::cli {
namespace {

// With less's usual options where the user has not chosen any: colours pass, a short text is just
// printed.
std::vector<std::string> environment() {
  std::vector<std::string> words;
  for (char** word = environ; *word != nullptr; ++word) words.emplace_back(*word);
  if (std::getenv("LESS") == nullptr) words.emplace_back("LESS=FRX");
  return words;
}

volatile std::sig_atomic_t pager_pidfd = -1;

// While the pager lives, Ctrl-C is its affair. Once it has been quit, what is still being computed
// for it is for nobody.
void on_interrupt(int number) {
  struct pollfd ended {};
  ended.fd = pager_pidfd;
  ended.events = POLLIN;
  if (::poll(&ended, 1, 0) == 1) ::_exit(128 + number);
}

}  // namespace

bool stdout_takes_colour() {
  const char* none = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return os::is_terminal(STDOUT_FILENO) && (none == nullptr || *none == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::optional<Pager> Pager::start() {
  if (!os::is_terminal(STDOUT_FILENO)) return std::nullopt;
  const char* chosen = std::getenv("PAGER");
  const std::string command =
      chosen == nullptr ? "command -v less >/dev/null 2>&1 && exec less || exec cat" : chosen;
  if (command.empty() || command == "cat") return std::nullopt;
  auto pipe = os::make_pipe();
  if (!pipe.ok()) return std::nullopt;
  os::SpawnOptions options;
  options.argv = {"/bin/sh", "-c", command};
  options.env = environment();
  options.fds = {{pipe->read.get(), 0}, {STDOUT_FILENO, 1}, {STDERR_FILENO, 2}};
  auto process = os::ChildProcess::spawn(options);
  if (!process.ok()) return std::nullopt;
  pager_pidfd = process->pidfd();
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGQUIT}) ::sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return Pager(std::move(process).value(), std::move(pipe->write));
}

Status Pager::write(std::string_view bytes) {
  const Status written = os::write_all(input_.get(), bytes);
  if (!written.ok() && written.error().error_number() == EPIPE) quit_ = true;
  return written;
}

void Pager::finish() {
  input_.reset();
  (void)process_.wait().ok();
}

}  // namespace cofferdam::orchestrator::cli
