// bench-fs-io: the parts of the benchmark whose own time must not count: walking a tree, writing,
// reading, random access. Prints the microseconds that the work took.
//   bench-fs-io walk DIR | write FILE MIB | read FILE | random FILE OPERATIONS
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

// Every object's attributes, as find and git ask for them.
void walk(const std::string& top) {
  std::vector<std::string> directories{top};
  while (!directories.empty()) {
    const std::string path = directories.back();
    directories.pop_back();
    DIR* stream = ::opendir(path.c_str());
    if (stream == nullptr) fail(path);
    while (const struct dirent* entry = ::readdir(stream)) {
      if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
      struct stat st {};
      if (::fstatat(::dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) fail(path);
      if (S_ISDIR(st.st_mode)) directories.push_back(path + "/" + entry->d_name);
    }
    ::closedir(stream);
  }
}

void write_whole(const std::string& path, long mebibytes) {
  const std::vector<char> block(1U << 20U, 'w');
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail(path);
  for (long i = 0; i < mebibytes; ++i) {
    if (::write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) fail(path);
  }
  if (::close(fd) != 0) fail(path);
}

void read_whole(const std::string& path) {
  std::vector<char> block(1U << 20U);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path);
  ssize_t got = 0;
  while ((got = ::read(fd, block.data(), block.size())) > 0) {
  }
  if (got < 0 || ::close(fd) != 0) fail(path);
}

// Three reads for each write, at places that a fixed generator chooses.
void random_access(const std::string& path, long operations) {
  constexpr off_t kBlock = 4096;
  std::vector<char> block(kBlock, 'r');
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat st {};
  if (fd < 0 || ::fstat(fd, &st) != 0) fail(path);
  const auto blocks = static_cast<std::uint64_t>(std::max<off_t>(1, st.st_size / kBlock));
  std::uint64_t state = 88172645463325252ULL;
  for (long i = 0; i < operations; ++i) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    const auto at = static_cast<off_t>(state % blocks) * kBlock;
    const ssize_t done =
        i % 4 == 3 ? ::pwrite(fd, block.data(), kBlock, at) : ::pread(fd, block.data(), kBlock, at);
    if (done != kBlock) fail(path);
  }
  if (::close(fd) != 0) fail(path);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  const long number = argc > 3 ? std::atol(argv[3]) : 0;
  const auto begin = std::chrono::steady_clock::now();
  if (what == "walk") {
    walk(argv[2]);
  } else if (what == "write" && number > 0) {
    write_whole(argv[2], number);
  } else if (what == "read") {
    read_whole(argv[2]);
  } else if (what == "random" && number > 0) {
    random_access(argv[2], number);
  } else {
    std::fputs(
        "usage: bench-fs-io walk DIR | write FILE MIB | read FILE | random FILE OPERATIONS\n",
        stderr);
    return 2;
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  std::printf("%lld\n", static_cast<long long>(
                            std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  return 0;
}
