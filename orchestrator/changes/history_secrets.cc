#include "orchestrator/changes/history_secrets.h"

#include <set>

#include "orchestrator/changes/tree_difference.h"
#include "orchestrator/reader/object_check.h"

namespace cofferdam::orchestrator::changes {
namespace {

using reader::ObjectId;
using reader::ObjectType;

constexpr std::uint64_t kMaxTreeBytes = std::uint64_t{4} << 30U;  // read, of all commits
constexpr std::size_t kMaxFound = 1000;

class Searcher final {
 public:
  explicit Searcher(const HistorySearch& search) : search_(search) {}

  Result<std::vector<HistorySecret>> run(const ObjectId& tip) {
    TRY_ASSIGN(const auto commits, new_commits(tip));
    for (const ObjectId& id : commits) TRY(look_at(id).context("commit " + reader::to_hex(id)));
    return std::move(found_);
  }

 private:
  Result<std::vector<ObjectId>> new_commits(const ObjectId& tip) const {
    reader::ObjectIdSet seen;
    std::vector<ObjectId> commits;
    std::vector<ObjectId> here;
    std::vector<ObjectId> pending{tip};
    while (!pending.empty()) {
      const ObjectId id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      const std::string* content = search_.commits.received.content(id);
      if (content == nullptr) {
        here.push_back(id);
        continue;
      }
      commits.push_back(id);
      TRY_ASSIGN(const auto links, reader::check_commit(*content));
      pending.insert(pending.end(), links.parents.begin(), links.parents.end());
    }
    TRY_ASSIGN(const auto before, search_.home.commits_of_nobody(here));
    commits.insert(commits.end(), before.begin(), before.end());
    return commits;
  }

  Status look_at(const ObjectId& id) {
    TRY_ASSIGN(const std::string content, search_.read(ObjectType::kCommit, id));
    TRY_ASSIGN(const auto links, reader::check_commit(content));
    TRY(note(reader::to_hex(id), search_.secrets_of(ObjectType::kCommit, id), true));
    std::optional<ObjectId> before;
    if (!links.parents.empty()) {
      TRY_ASSIGN(const std::string parent, search_.read(ObjectType::kCommit, links.parents[0]));
      if (parent.starts_with(kTree)) {
        before = reader::id_from_hex(parent.substr(kTree.size(), 2 * ObjectId::kSize));
      }
      if (!before) return Error("a parent without a tree");
    }
    TRY_ASSIGN(const auto paths,
               compare_trees(before, links.tree, [&](const ObjectId& tree) -> Result<std::string> {
                 auto read = search_.read(ObjectType::kTree, tree);
                 if (read.ok()) tree_bytes_ += read->size();
                 if (tree_bytes_ > kMaxTreeBytes) return Error("more history than can be searched");
                 return read;
               }));
    for (const TreeDifference& path : paths) {
      if (!path.after || path.after->kind == reader::EntryKind::kSubmodule) continue;
      if (!path.before) TRY(note(path.path, search_.secrets_in(path.path), false));
      auto secrets = search_.secrets_of(ObjectType::kBlob, path.after->id);
      if (secrets.empty()) continue;
      if (path.before && path.before->kind != reader::EntryKind::kSubmodule) {
        secrets::forget_known(secrets, search_.secrets_of(ObjectType::kBlob, path.before->id));
      }
      TRY(note(path.path, secrets, false));
    }
    return {};
  }

  Status note(const std::string& path, const secrets::FoundSecrets& secrets, bool in_message) {
    if (secrets.empty() || !paths_.insert(path).second) return {};
    if (found_.size() == kMaxFound) return Error("more secrets than can be listed");
    found_.push_back({path, secrets.begin()->second, in_message});
    return {};
  }

  static constexpr std::string_view kTree = "tree ";
  const HistorySearch& search_;
  std::vector<HistorySecret> found_;
  std::set<std::string> paths_;
  std::uint64_t tree_bytes_ = 0;
};

}  // namespace

Result<std::vector<HistorySecret>> secrets_of_history(const HistorySearch& search,
                                                      const ObjectId& tip) {
  return Searcher(search).run(tip);
}

}  // namespace cofferdam::orchestrator::changes
