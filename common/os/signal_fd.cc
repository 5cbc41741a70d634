#include "common/os/signal_fd.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>

namespace cofferdam::os {

Result<SignalFd> SignalFd::create(std::initializer_list<int> signals) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : signals) sigaddset(&wanted, number);
  SignalFd result;
  if (::sigprocmask(SIG_BLOCK, &wanted, &result.before_) != 0) {
    return Error::from_errno("sigprocmask");
  }
  UniqueFd fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    const Error error = Error::from_errno("signalfd");
    ::sigprocmask(SIG_SETMASK, &result.before_, nullptr);
    return error;
  }
  result.fd_ = std::move(fd);
  return result;
}

SignalFd::SignalFd(SignalFd&& other) noexcept : fd_(std::move(other.fd_)), before_(other.before_) {}

SignalFd::~SignalFd() {
  if (!fd_) return;
  while (next()) {  // what is still pending was meant for the run that ends here
  }
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalFd::next() const {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) {
    return std::nullopt;
  }
  return static_cast<int>(info.ssi_signo);
}

}  // namespace cofferdam::os
