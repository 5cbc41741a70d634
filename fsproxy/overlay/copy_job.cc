#include "fsproxy/overlay/copy_job.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/os/beneath.h"
#include "fsproxy/overlay/lower_tree.h"

namespace cofferdam::overlay {
namespace {

bool put_all(int fd, std::string_view bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
    at += put;
  }
  return true;
}

// Blocks of nothing but zeros stay holes. `at` is a multiple of the block.
bool put_data(int fd, std::string_view bytes, off_t at) {
  constexpr std::size_t kBlock = 4096;
  const auto is_hole = [&](std::size_t from) {
    const std::string_view block = bytes.substr(from, kBlock);
    return std::all_of(block.begin(), block.end(), [](char c) { return c == 0; });
  };
  for (std::size_t from = 0; from < bytes.size();) {
    if (is_hole(from)) {
      from += kBlock;
      continue;
    }
    std::size_t to = from;
    while (to < bytes.size() && !is_hole(to)) to += kBlock;
    if (!put_all(fd, bytes.substr(from, to - from), at + static_cast<off_t>(from))) return false;
    from = to;
  }
  return true;
}

}  // namespace

void CopyJob::run() {
  constexpr std::size_t kSlice = 1U << 20U;
  const bool shared = os::clone_file(from.get(), to.get()).ok();
  std::vector<char> buffer(kSlice);
  Sha256 hash;
  off_t at = 0;
  for (;;) {
    if (cancel.load(std::memory_order_relaxed)) return;
    const ssize_t got = ::pread(from.get(), buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    if (got == 0) break;
    const auto size = static_cast<std::size_t>(got);
    hash.update({buffer.data(), size});
    if (!shared && !put_data(to.get(), {buffer.data(), size}, at)) return;
    at += got;
  }
  if (!shared && ::ftruncate(to.get(), at) != 0) return;
  const auto after = stat_lower(from.get(), "");
  if (!after.ok() || version_of(after->st) != version) return;
  sha256 = hash.finish();
  done = true;
}

}  // namespace cofferdam::overlay
