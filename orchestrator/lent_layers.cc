#include "orchestrator/lent_layers.h"

#include <stdio.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "common/layer/layer_stack.h"
#include "common/os/files.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLockPatience{30};

std::vector<std::string> names_in(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(path, code), end; !code && it != end; it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

// Directories at most three below a sandbox's that are layer directories.
void find_layers(const fs::path& at, int depth, std::vector<fs::path>& out) {
  std::error_code code;
  if (fs::is_directory(at / "layers", code)) out.push_back(at);
  if (depth == 0) return;
  for (const std::string& name : names_in(at)) {
    if (name == "layers" || name == "users" || name == "upper" || name == "work" ||
        name == "index" || fs::is_symlink(at / name, code) || !fs::is_directory(at / name, code)) {
      continue;
    }
    find_layers(at / name, depth - 1, out);
  }
}

bool is_lent(const fs::path& directory) {
  std::vector<fs::path> layers;
  find_layers(directory, 3, layers);
  for (const fs::path& layer : layers) {
    if (!names_in(layer / "users").empty()) return true;
  }
  return false;
}

// Everything of a sandbox but its frozen layers and who uses them.
Status strip(const fs::path& at, int depth) {
  std::error_code code;
  for (const std::string& name : names_in(at)) {
    if (name == "layers" || name == "users") continue;
    std::vector<fs::path> layers;
    const bool inner = depth > 0 && name != "upper" && name != "work" &&
                       fs::is_directory(at / name, code) && !fs::is_symlink(at / name, code);
    if (inner) find_layers(at / name, depth - 1, layers);
    TRY(layers.empty() ? os::remove_tree(at / name) : strip(at / name, depth - 1));
  }
  return {};
}

}  // namespace

fs::path lent_root(const fs::path& sandboxes) {
  return sandboxes.parent_path() / "lent";
}

Result<os::FileLock> lock_lent(const fs::path& sandboxes) {
  TRY(os::make_directories(lent_root(sandboxes), 0700));
  const auto end = std::chrono::steady_clock::now() + kLockPatience;
  while (true) {
    TRY_ASSIGN(auto lock, os::FileLock::try_acquire(lent_root(sandboxes) / ".lock"));
    if (lock) return std::move(*lock);
    if (std::chrono::steady_clock::now() >= end) return Error("another fork or removal takes long");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Status give_back(const fs::path& sandboxes, const SandboxRecord& sandbox) {
  std::vector<fs::path> layers;
  find_layers(sandbox.directory, 3, layers);
  for (const fs::path& layer : layers) {
    TRY_ASSIGN(const auto borrowed, layer::borrowed_layers(layer));
    for (const fs::path& upper : borrowed) {
      // …/<owner>/<mount>/layers/<n>/upper
      const fs::path owner_layer = upper.parent_path().parent_path().parent_path();
      (void)::unlink((owner_layer / "users" / sandbox.id).c_str());
    }
  }
  for (const std::string& name : names_in(lent_root(sandboxes))) {
    const fs::path owner = lent_root(sandboxes) / name;
    if (name != ".lock" && !is_lent(owner)) TRY(os::remove_tree(owner));
  }
  return {};
}

Result<bool> release_layers(const fs::path& root, const SandboxRecord& sandbox) {
  std::vector<fs::path> layers;
  find_layers(sandbox.directory, 3, layers);
  if (layers.empty()) return false;
  TRY_ASSIGN(const os::FileLock lock, lock_lent(root));
  TRY(give_back(root, sandbox));
  if (!is_lent(sandbox.directory)) return false;
  const fs::path kept = lent_root(root) / sandbox.id;
  if (::rename(sandbox.directory.c_str(), kept.c_str()) != 0) {
    return Error::from_errno("keep what other sandboxes stand on");
  }
  TRY(strip(kept, 3));
  return true;
}

}  // namespace cofferdam::orchestrator
