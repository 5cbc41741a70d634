#include "orchestrator/changes/bulk_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <mutex>
#include <set>
#include <vector>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/bare_repository.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/side_by_side.h"
#include "orchestrator/changes/upper_walk.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

constexpr std::uint32_t kSetIdBits = 06000;
// Reading them costs time, making them did not: then each is judged by itself.
constexpr std::uint64_t kMaxSearchedHoles = std::uint64_t{8} << 30U;

std::string joined(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

// Names in one directory: what one piece of work is about.
struct Names {
  std::string directory;
  std::vector<std::string> names;
};
using Files = std::vector<Names>;
constexpr std::size_t kPiece = 256;

class Looker final {
 public:
  Looker(const RiskTable& risks, const IsHidden& is_hidden)
      : risks_(risks), is_hidden_(is_hidden) {}

  // False: no bulk tree. Directories are opened by their paths: no depth costs descriptors.
  Result<bool> look(int upper, const std::string& top) {
    std::vector<std::string> directories{top};
    while (!directories.empty()) {
      const std::string path = std::move(directories.back());
      directories.pop_back();
      const auto directory = os::open_in_tree(upper, path, O_RDONLY | O_DIRECTORY);
      if (!directory.ok()) return false;
      TRY_ASSIGN(const bool plain, enter(directory->get(), path, directories));
      if (!plain) return false;
    }
    return true;
  }

  BulkTree tree;
  Files files;

 private:
  Result<bool> enter(int directory, const std::string& path, std::vector<std::string>& below) {
    std::set<std::string> names;
    bool plain = true;
    std::vector<std::string> contents;
    TRY(os::for_each_name(directory, [&](std::string_view name) -> Status {
      if (!plain) return {};
      TRY_ASSIGN(plain, take(directory, path, std::string(name), below, contents));
      names.emplace(name);
      if (contents.size() == kPiece) {
        files.push_back({path, std::move(contents)});
        contents.clear();
      }
      return {};
    }));
    if (!contents.empty()) files.push_back({path, std::move(contents)});
    return plain && !is_repository_listing(names);
  }

  Result<bool> take(int directory, const std::string& path, const std::string& name,
                    std::vector<std::string>& below, std::vector<std::string>& contents) {
    const std::string full = joined(path, name);
    // The depth is bounded by this too.
    if (full.size() > os::kMaxTreePath || is_dot_git(name)) return false;
    TRY_ASSIGN(const struct stat st, os::stat_in(directory, name));
    const Kind kind = kind_of_mode(st.st_mode);
    if (kind == Kind::kOther || is_hidden_(full, kind == Kind::kDirectory)) return false;
    if (kind == Kind::kFile && (st.st_mode & kSetIdBits) != 0) return false;
    // One that cannot be copied is left out by itself, not with all that lies beside it.
    const bool surely_readable = (st.st_mode & S_IRUSR) != 0 && st.st_uid == ::geteuid();
    if (kind == Kind::kFile && !surely_readable &&
        ::faccessat(directory, name.c_str(), R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) != 0) {
      return false;
    }
    ++tree.entries;
    Change change;
    change.path = full;
    change.kind = ChangeKind::kAdded;
    change.theirs.kind = kind;
    change.theirs.mode = st.st_mode & 07777U;
    std::string link;
    if (kind == Kind::kSymlink) {
      TRY_ASSIGN(link, os::read_link_in(directory, name));
    } else if (kind == Kind::kFile) {
      tree.bytes += static_cast<std::uint64_t>(st.st_size);
      const std::uint64_t holes = holes_of(st);
      if (holes > std::numeric_limits<std::uint64_t>::max() - tree.holes) return false;
      tree.holes += holes;
      contents.push_back(name);
    } else {
      below.push_back(full);
    }
    const Risk risk = risks_.assess(change, link);
    if (risk.level > tree.risk.level) {
      tree.risk = risk;
      tree.risky_path = full;
      tree.risky = 0;
    }
    if (risk.level == tree.risk.level) ++tree.risky;
    return true;
  }

  const RiskTable& risks_;
  const IsHidden& is_hidden_;
};

// The first by its path, whichever was found first.
Status find_secrets(int upper, const Files& files, const secrets::SecretScanner& scanner,
                    BulkTree& tree) {
  std::mutex mutex;
  return side_by_side(files.size(), [&](std::size_t index) -> Status {
    const auto& [directory, names] = files[index];
    TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(upper, directory, O_RDONLY | O_DIRECTORY));
    for (const std::string& name : names) {
      secrets::FoundSecrets found;
      secrets::SecretSearch search = secrets::search_into(scanner, found);
      TRY(stream_object(fd.get(), name, [&](std::string_view bytes) -> Status {
        search.feed(bytes);
        return {};
      }));
      search.finish();
      secrets::SecretSearch in_name = secrets::search_into(scanner, found);
      in_name.feed(name);
      in_name.finish();
      if (found.empty()) continue;
      const std::string path = joined(directory, name);
      const std::lock_guard lock(mutex);
      ++tree.secrets;
      if (tree.secrets > 1 && tree.secret_path < path) continue;
      tree.secret_path = path;
      tree.secret = found.begin()->second;
    }
    return {};
  });
}

}  // namespace

Result<std::optional<BulkTree>> look_through(int upper, const std::string& path,
                                             const RiskTable& risks,
                                             const secrets::SecretScanner& scanner,
                                             const IsHidden& is_hidden) {
  Looker looker(risks, is_hidden);
  ++looker.tree.entries;
  TRY_ASSIGN(const bool plain, looker.look(upper, path));
  if (!plain || looker.tree.holes > kMaxSearchedHoles) return std::optional<BulkTree>();
  // One that cannot be read is left out by itself, with its reason.
  if (!find_secrets(upper, looker.files, scanner, looker.tree).ok()) {
    return std::optional<BulkTree>();
  }
  return std::optional<BulkTree>(std::move(looker.tree));
}

}  // namespace cofferdam::orchestrator::changes
