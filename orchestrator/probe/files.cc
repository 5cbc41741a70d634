// Attempts on files: reading what is outside, writing outside, forging the layer's marks.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "orchestrator/probe/probe.h"

namespace probe {
namespace {

// read PATH…: any byte of any of them.
int read_paths(const Arguments& paths) {
  std::string told;
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    if (fd < 0) {
      told += path + ": " + std::strerror(errno) + "; ";
      continue;
    }
    char buffer[256];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    ::close(fd);
    if (got > 0) return escaped("read " + std::to_string(got) + " bytes of " + path);
    told += path + ": nothing to read; ";
  }
  return blocked(told);
}

// list DIR NAME: NAME shows up in DIR.
int list_shows(const Arguments& arguments) {
  DIR* dir = ::opendir(arguments.at(0).c_str());
  if (dir == nullptr) return blocked_by_errno("opendir");
  bool found = false;
  while (const dirent* entry = ::readdir(dir)) found = found || arguments.at(1) == entry->d_name;
  ::closedir(dir);
  return found ? escaped("listed") : blocked("not listed");
}

// write PATH…: a byte lands in any of them (created where it is missing).
int write_paths(const Arguments& paths) {
  std::string told;
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0644);
    if (fd < 0) {
      told += path + ": " + std::strerror(errno) + "; ";
      continue;
    }
    const bool put = ::write(fd, "x", 1) == 1;
    const int why = errno;
    ::close(fd);
    if (put) return escaped("wrote to " + path);
    told += path + ": write: " + std::strerror(why) + "; ";
  }
  return blocked(told);
}

// symlink-write LINK TARGET: makes the link in the workspace and writes through it.
int symlink_write(const Arguments& arguments) {
  ::unlink(arguments.at(0).c_str());
  if (::symlink(arguments.at(1).c_str(), arguments.at(0).c_str()) != 0) {
    return unusable(std::string("symlink: ") + std::strerror(errno));
  }
  return write_paths({arguments.at(0)});
}

int symlink_read(const Arguments& arguments) {
  ::unlink(arguments.at(0).c_str());
  if (::symlink(arguments.at(1).c_str(), arguments.at(0).c_str()) != 0) {
    return unusable(std::string("symlink: ") + std::strerror(errno));
  }
  return read_paths({arguments.at(0)});
}

// hardlink TARGET LINK: a second name for something outside or hidden.
int hard_link(const Arguments& arguments) {
  if (::link(arguments.at(0).c_str(), arguments.at(1).c_str()) != 0)
    return blocked_by_errno("link");
  return escaped("linked " + arguments.at(0));
}

int rename_path(const Arguments& arguments) {
  if (::rename(arguments.at(0).c_str(), arguments.at(1).c_str()) != 0) {
    return blocked_by_errno("rename");
  }
  return escaped("renamed to " + arguments.at(1));
}

// proc-sys-write: opens every file below /proc/sys for writing.
int proc_sys_write(const Arguments& arguments) {
  std::vector<std::string> pending = {arguments.empty() ? "/proc/sys" : arguments.at(0)};
  std::size_t seen = 0;
  while (!pending.empty()) {
    const std::string directory = pending.back();
    pending.pop_back();
    DIR* dir = ::opendir(directory.c_str());
    if (dir == nullptr) continue;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::string path = directory + "/" + name;
      struct stat st {};
      if (::lstat(path.c_str(), &st) != 0) continue;
      if (S_ISDIR(st.st_mode)) {
        pending.push_back(path);
        continue;
      }
      ++seen;
      const int fd = ::open(path.c_str(), O_WRONLY);
      if (fd >= 0) {
        ::close(fd);
        ::closedir(dir);
        return escaped("opened for writing: " + path);
      }
    }
    ::closedir(dir);
  }
  return blocked("none of " + std::to_string(seen) + " files opens for writing");
}

// mknod KIND PATH: char00 (a whiteout), mem (character 1:1), block (8:0).
int make_node(const Arguments& arguments) {
  const std::string& kind = arguments.at(0);
  const mode_t type = kind == "block" ? S_IFBLK : S_IFCHR;
  dev_t device = makedev(0, 0);
  if (kind == "mem") device = makedev(1, 1);
  if (kind == "block") device = makedev(8, 0);
  if (::mknod(arguments.at(1).c_str(), type | 0666, device) != 0) return blocked_by_errno("mknod");
  return escaped("made a device node");
}

// whiteout-rename FROM TO: renameat2 with RENAME_WHITEOUT.
int whiteout_rename(const Arguments& arguments) {
  constexpr unsigned kRenameWhiteout = 4;
  if (::syscall(SYS_renameat2, AT_FDCWD, arguments.at(0).c_str(), AT_FDCWD, arguments.at(1).c_str(),
                kRenameWhiteout) != 0) {
    return blocked_by_errno("renameat2");
  }
  return escaped("renamed with a whiteout left behind");
}

// xattr PATH NAME: sets one of the layer's own marks.
int set_mark(const Arguments& arguments) {
  if (::setxattr(arguments.at(0).c_str(), arguments.at(1).c_str(), "y", 1, 0) != 0) {
    return blocked_by_errno("setxattr");
  }
  return escaped("set " + arguments.at(1));
}

// setuid-bit PATH: whether a set-uid mode has effect is the mount's; here: nosuid is set.
int nosuid_missing(const Arguments& arguments) {
  struct statvfs st {};
  if (::statvfs(arguments.at(0).c_str(), &st) != 0) return unusable("statvfs");
  return (st.f_flag & ST_NOSUID) != 0 ? blocked("nosuid") : escaped("mounted without nosuid");
}

int dotdot_read(const Arguments& arguments) {
  // From an open directory upwards, past the workspace's root.
  const int start = ::open(arguments.at(0).c_str(), O_RDONLY | O_DIRECTORY);
  if (start < 0) return unusable("open directory");
  const std::string path = "../../../../../../../../../.." + arguments.at(1);
  const int fd = ::openat(start, path.c_str(), O_RDONLY);
  ::close(start);
  if (fd < 0) return blocked_by_errno("openat");
  char byte = 0;
  const ssize_t got = ::read(fd, &byte, 1);
  ::close(fd);
  return got == 1 ? escaped("read " + path) : blocked("nothing to read");
}

}  // namespace

const Attempt kFileAttempts[] = {{"read", read_paths},
                                 {"list", list_shows},
                                 {"write", write_paths},
                                 {"symlink-write", symlink_write},
                                 {"symlink-read", symlink_read},
                                 {"hardlink", hard_link},
                                 {"rename", rename_path},
                                 {"proc-sys-write", proc_sys_write},
                                 {"mknod", make_node},
                                 {"whiteout-rename", whiteout_rename},
                                 {"xattr", set_mark},
                                 {"nosuid", nosuid_missing},
                                 {"dotdot-read", dotdot_read},
                                 {nullptr, nullptr}};

}  // namespace probe
