#include "fsproxy/overlay/content_copy.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/os/beneath.h"

namespace cofferdam::overlay {
namespace {

Status copy_by_hand(int from, int to, off_t begin, off_t end) {
  std::vector<char> buffer(static_cast<std::size_t>(std::min<off_t>(end - begin, 1 << 20)));
  while (begin < end) {
    const auto want =
        static_cast<std::size_t>(std::min<off_t>(end - begin, static_cast<off_t>(buffer.size())));
    const ssize_t got = ::pread(from, buffer.data(), want, begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("copy: read");
    if (got == 0) return {};  // it became shorter: the caller compares versions
    for (ssize_t done = 0; done < got;) {
      const ssize_t put =
          ::pwrite(to, buffer.data() + done, static_cast<std::size_t>(got - done), begin + done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Error::from_errno("copy: write");
      done += put;
    }
    begin += got;
  }
  return {};
}

Status copy_extent(int from, int to, off_t begin, off_t end) {
  off_t in = begin;
  off_t out = begin;
  while (in < end) {
    const ssize_t put =
        ::copy_file_range(from, &in, to, &out, static_cast<std::size_t>(end - in), 0);
    if (put > 0) continue;
    if (put < 0 && (errno == ENOSPC || errno == EDQUOT)) return Error::from_errno("copy");
    // Not between these file systems, or nothing more to get this way.
    return copy_by_hand(from, to, in, end);
  }
  return {};
}

}  // namespace

Status copy_content(int from, int to, off_t size) {
  if (size == 0) return {};
  if (os::clone_file(from, to).ok()) return {};
  off_t at = 0;
  while (at < size) {
    off_t begin = ::lseek(from, at, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) break;  // only a hole is left
    off_t end = begin < 0 ? -1 : ::lseek(from, begin, SEEK_HOLE);
    if (begin < 0 || end < 0) begin = at, end = size;
    TRY(copy_extent(from, to, begin, std::min(end, size)));
    at = end;
  }
  if (::ftruncate(to, size) != 0) return Error::from_errno("copy: truncate");
  return {};
}

}  // namespace cofferdam::overlay
