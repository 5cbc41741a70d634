#include "common/os/epoll.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

namespace cofferdam::os {
namespace {

constexpr std::size_t kAtOnce = 256;

int control(int epoll, int operation, int fd, void* tag, bool writes) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET;
  if (writes) event.events |= EPOLLOUT;
  event.data.ptr = tag;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0 ? 0 : errno;
}

}  // namespace

Result<Epoll> Epoll::create() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) return Error::from_errno("epoll_create1");
  return Epoll(std::move(fd));
}

int Epoll::add(int fd, void* tag, bool writes) const {
  return control(fd_.get(), EPOLL_CTL_ADD, fd, tag, writes);
}

int Epoll::modify(int fd, void* tag, bool writes) const {
  return control(fd_.get(), EPOLL_CTL_MOD, fd, tag, writes);
}

std::span<Epoll::Event> Epoll::take(std::span<Event> into) const {
  std::array<epoll_event, kAtOnce> found;
  const auto wanted = static_cast<int>(std::min(into.size(), kAtOnce));
  const int count = ::epoll_wait(fd_.get(), found.data(), wanted, 0);
  std::size_t taken = 0;
  for (; count > 0 && taken < static_cast<std::size_t>(count); ++taken) {
    const epoll_event& event = found[taken];
    const bool broken = (event.events & (EPOLLHUP | EPOLLERR)) != 0;
    into[taken] = {event.data.ptr,
                   (event.events & EPOLLIN) != 0,
                   (event.events & EPOLLOUT) != 0,
                   broken || (event.events & EPOLLRDHUP) != 0,
                   broken,
                   (event.events & EPOLLPRI) != 0};
  }
  return into.first(taken);
}

}  // namespace cofferdam::os
