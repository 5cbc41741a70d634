#include "common/os/socket_io.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

namespace cofferdam::os {
namespace {

template <typename Call>
Moved moved_by(const Call& call) {
  ssize_t count = 0;
  do {
    count = call();
  } while (count < 0 && errno == EINTR);

  if (count > 0) return {Moving::kMoved, static_cast<std::size_t>(count)};
  if (count == 0) return {Moving::kEnd};
  if (errno == EAGAIN) return {Moving::kWouldBlock};
  return {Moving::kFailed, 0, errno};
}

constexpr unsigned kSpliceFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

}  // namespace

Moved receive_now(int socket, std::span<char> into) {
  return moved_by([&] { return ::recv(socket, into.data(), into.size(), MSG_DONTWAIT); });
}

Moved peek_now(int socket, std::span<char> into) {
  return moved_by(
      [&] { return ::recv(socket, into.data(), into.size(), MSG_DONTWAIT | MSG_PEEK); });
}

Moved send_now(int socket, std::span<const char> bytes) {
  return moved_by(
      [&] { return ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL); });
}

Result<SplicePipe> SplicePipe::open(std::size_t wanted_size) {
  TRY_ASSIGN(Pipe pipe, make_pipe());
  (void)::fcntl(pipe.write.get(), F_SETPIPE_SZ, static_cast<int>(wanted_size));
  return SplicePipe(std::move(pipe));
}

Moved SplicePipe::fill(int socket, std::size_t limit) {
  const Moved moved = moved_by(
      [&] { return ::splice(socket, nullptr, pipe_.write.get(), nullptr, limit, kSpliceFlags); });
  size_ += moved.count;
  return moved;
}

Moved SplicePipe::drain(int socket) {
  if (size_ == 0) return {Moving::kWouldBlock};
  const Moved moved = moved_by(
      [&] { return ::splice(pipe_.read.get(), nullptr, socket, nullptr, size_, kSpliceFlags); });
  size_ -= moved.count;
  return moved;
}

}  // namespace cofferdam::os
