#include "tests/fakes/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

namespace cofferdam::fakes {
namespace {

namespace fs = std::filesystem;

void must(bool done, const std::string& what) {
  if (done) return;
  std::cerr << "test set-up failed: " << what << ": " << std::strerror(errno) << "\n";
  std::abort();
}

}  // namespace

const char* scratch_directory() {
  // An ordinary user's tmpfs has no user.* xattrs on kernels before 6.6.
  return ::geteuid() == 0 && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

void write_node(const fs::path& root, const std::string& path, const Node& node) {
  const std::string full = (root / path).string();
  switch (node.kind) {
    case NodeKind::kFile: {
      std::ofstream out(full, std::ios::binary | std::ios::trunc);
      out << node.content;
      out.close();
      must(out.good(), full);
      must(::chmod(full.c_str(), node.mode) == 0, full);
      break;
    }
    case NodeKind::kDirectory:
      must(::mkdir(full.c_str(), 0700) == 0, full);
      must(::chmod(full.c_str(), node.mode) == 0, full);
      break;
    case NodeKind::kSymlink:
      must(::symlink(node.content.c_str(), full.c_str()) == 0, full);
      break;
    case NodeKind::kFifo:
      must(::mkfifo(full.c_str(), 0644) == 0, full);
      break;
  }
}

void write_tree(const fs::path& root, const Tree& tree) {
  for (const auto& [path, node] : tree) write_node(root, path, node);
}

Tree read_tree(const fs::path& root) {
  Tree tree;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    struct stat st {};
    must(::lstat(it->path().c_str(), &st) == 0, it->path().string());
    Node node;
    node.mode = st.st_mode & 07777U;
    if (S_ISREG(st.st_mode)) {
      node.kind = NodeKind::kFile;
      std::ifstream in(it->path(), std::ios::binary);
      std::stringstream text;
      text << in.rdbuf();
      node.content = text.str();
    } else if (S_ISDIR(st.st_mode)) {
      node.kind = NodeKind::kDirectory;
    } else if (S_ISLNK(st.st_mode)) {
      node.kind = NodeKind::kSymlink;
      node.mode = 0;
      node.content = fs::read_symlink(it->path()).string();
    } else {
      node.kind = NodeKind::kFifo;
    }
    tree[it->path().lexically_relative(root).string()] = node;
  }
  return tree;
}

std::string parent(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

bool is_well_formed(const Tree& tree) {
  for (const auto& [path, node] : tree) {
    const std::string above = parent(path);
    if (above.empty()) continue;
    const auto found = tree.find(above);
    if (found == tree.end() || found->second.kind != NodeKind::kDirectory) return false;
  }
  return true;
}

Tree subtree(const Tree& tree, const std::string& path) {
  Tree result;
  for (const auto& [name, node] : tree) {
    if (name == path || name.starts_with(path + "/")) result[name] = node;
  }
  return result;
}

std::ostream& operator<<(std::ostream& out, const Node& node) {
  constexpr const char* kNames[] = {"file", "directory", "symlink", "fifo"};
  return out << kNames[static_cast<int>(node.kind)] << " " << std::oct << node.mode << std::dec
             << " " << node.content.size() << " bytes \"" << node.content.substr(0, 40) << "\"";
}

std::string difference(const Tree& a, const Tree& b) {
  std::ostringstream out;
  int lines = 0;
  for (const auto& [path, node] : a) {
    const auto found = b.find(path);
    if (found != b.end() && found->second == node) continue;
    if (++lines > 10) break;
    out << path << ": " << node << " against ";
    if (found == b.end()) {
      out << "nothing\n";
    } else {
      out << found->second << "\n";
    }
  }
  for (const auto& [path, node] : b) {
    if (!a.contains(path) && ++lines < 20) out << path << ": nothing against " << node << "\n";
  }
  return out.str();
}

}  // namespace cofferdam::fakes
