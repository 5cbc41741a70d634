#include "common/os/terminal.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace cofferdam::os {
namespace {

// A terminal is changed from a background process group too: SIGTTOU would stop us there.
template <typename Change>
int without_stop(Change change) {
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  ::sigprocmask(SIG_BLOCK, &stop, &before);
  const int result = change();
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return result;
}

int set_settings(int fd, const termios& settings) {
  return without_stop([&] { return ::tcsetattr(fd, TCSADRAIN, &settings); });
}

}  // namespace

bool is_terminal(int fd) {
  return ::isatty(fd) == 1;
}

bool is_pty_master(int fd) {
  constexpr unsigned kTtyAuxMajor = 5;
  constexpr unsigned kPtmxMinor = 2;
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode)) return false;
  unsigned int number = 0;
  return major(st.st_rdev) == kTtyAuxMajor && minor(st.st_rdev) == kPtmxMinor &&
         ::ioctl(fd, TIOCGPTN, &number) == 0;
}

std::optional<std::size_t> terminal_rows(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::nullopt;
  return size.ws_row;
}

void copy_window_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) (void)::ioctl(to, TIOCSWINSZ, &size);
}

void discard_typed_ahead(int fd) {
  (void)without_stop([fd] { return ::tcflush(fd, TCIFLUSH); });
}

Result<RawTerminal> RawTerminal::enter(int fd) {
  termios before{};
  if (::tcgetattr(fd, &before) != 0) return Error::from_errno("tcgetattr");
  termios raw = before;
  ::cfmakeraw(&raw);
  if (set_settings(fd, raw) != 0) return Error::from_errno("tcsetattr");
  return RawTerminal(fd, before);
}

RawTerminal::RawTerminal(RawTerminal&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), before_(other.before_) {}

RawTerminal::~RawTerminal() {
  if (fd_ >= 0) (void)set_settings(fd_, before_);
}

}  // namespace cofferdam::os
