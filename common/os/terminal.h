// Terminals: the user's own in raw mode, and the size of one carried to another.
#pragma once

#include <termios.h>

#include <cstddef>
#include <optional>

#include "common/base/result.h"

namespace cofferdam::os {

bool is_terminal(int fd);

// Whether `fd` is the master side of a Unix98 pseudo terminal and nothing else.
bool is_pty_master(int fd);

// Rows of the window; nothing where `fd` is no terminal, or does not know.
std::optional<std::size_t> terminal_rows(int fd);

// Copies rows and columns; no error when `from` is no terminal.
void copy_window_size(int from, int to);

// Forgets what was typed and not read yet: it was an answer to somebody else's question.
void discard_typed_ahead(int fd);

// cfmakeraw on a terminal of the user; the settings of before come back with the destructor.
class RawTerminal final {
 public:
  static Result<RawTerminal> enter(int fd);
  RawTerminal(RawTerminal&& other) noexcept;
  RawTerminal& operator=(RawTerminal&&) = delete;
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

 private:
  RawTerminal(int fd, const termios& before) : fd_(fd), before_(before) {}
  int fd_ = -1;
  termios before_{};
};

}  // namespace cofferdam::os
