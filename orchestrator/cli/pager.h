// Pager: what is long is shown through the user's own pager, when stdout is a terminal.
#pragma once

#include <csignal>
#include <optional>
#include <string_view>

#include "common/base/result.h"
#include "common/os/process.h"
#include "common/os/unique_fd.h"

namespace cofferdam::orchestrator::cli {

// The environment's PAGER, else less; never one that a repository's configuration names. While it
// lives, Ctrl-C is its affair and a pager that was quit is no error.
class Pager final {
 public:
  // Nothing when stdout is no terminal, PAGER is empty or "cat", or it cannot be started.
  static std::optional<Pager> start();

  Pager(Pager&&) noexcept = default;
  Pager& operator=(Pager&&) = delete;

  // An error once it has been quit: nothing more will be read.
  Status write(std::string_view bytes);
  bool quit() const { return quit_; }
  // Ends its input and waits until the user leaves it.
  void finish();

 private:
  Pager(os::ChildProcess process, os::UniqueFd input)
      : process_(std::move(process)), input_(std::move(input)) {}

  os::ChildProcess process_;
  os::UniqueFd input_;
  bool quit_ = false;
};

// Whether to colour what is written to stdout: a terminal that is not dumb, and no NO_COLOR.
bool stdout_takes_colour();

}  // namespace cofferdam::orchestrator::cli
