#include "orchestrator/changes/commits.h"

#include <algorithm>
#include <unordered_map>

#include "common/base/escape.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/completeness.h"
#include "orchestrator/changes/fast_forward.h"
#include "orchestrator/changes/git_layer.h"
#include "orchestrator/changes/pack_writer.h"
#include "orchestrator/changes/reader_session.h"

namespace cofferdam::orchestrator::changes {
namespace {

using reader::ObjectId;
using reader::ObjectType;

std::string reference_of(const SandboxRecord& sandbox, const std::string& branch) {
  // The id, not the name: a later sandbox may have the same name.
  return "refs/cofferdam/" + sandbox.id + "/" + branch;
}

constexpr std::size_t kMostCounted = 10'000;
constexpr std::size_t kMostLeft = 1'000;
constexpr const char* kWhyLeft = "only branches come home";

// Objects go into a pack while they arrive; a dry run keeps none.
class Receiving final {
 public:
  static Result<Receiving> begin(const HomeRepository& home, bool dry_run) {
    Receiving receiving;
    if (dry_run) return receiving;
    TRY_ASSIGN(const auto owner, home.act_as_owner());
    auto pack = PackWriter::begin(home.common_directory() / "objects/pack");
    if (!pack.ok()) return pack.error();
    receiving.pack_.emplace(std::move(pack).value());
    return receiving;
  }
  Status take(ObjectType type, const ObjectId& id, std::string_view content) {
    return pack_ ? pack_->add(type, id, content) : Status();
  }
  // Only what branches lead to that come home: of what is incomplete nothing is here afterwards.
  Status finish(const HomeRepository& home, const reader::ObjectIdSet& wanted) {
    if (!pack_) return {};
    TRY_ASSIGN(const auto owner, home.act_as_owner());
    const Status done = pack_->finish(wanted);
    pack_.reset();  // as the owner too
    return done;
  }

 private:
  std::optional<PackWriter> pack_;
};

// Bounded: where too much was found, it is only known that there was something.
class SecretsByObject final {
 public:
  void add(const ObjectId& id, secrets::FoundSecrets secrets) {
    if (secrets.empty()) return;
    for (const auto& [text, what] : secrets) bytes_ += text.size() + what.size();
    if (bytes_ > kMaxBytes) secrets = {{"", secrets::kTooMany}};
    found_.emplace(id, std::move(secrets));
  }
  std::map<ObjectId, secrets::FoundSecrets> take() && { return std::move(found_); }

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20U;
  std::map<ObjectId, secrets::FoundSecrets> found_;
  std::size_t bytes_ = 0;
};

// Commits among the received ones that a branch leads to; each is parsed once, and no more are
// counted than people have use for, or many branches of a long history would take hours.
class CommitCounter final {
 public:
  explicit CommitCounter(const Received& received) : received_(received) {}

  Result<std::size_t> count(const ObjectId& tip) {
    reader::ObjectIdSet seen;
    std::vector<ObjectId> pending{tip};
    while (!pending.empty() && seen.size() < kMostCounted) {
      const ObjectId id = pending.back();
      pending.pop_back();
      const std::string* content = received_.content(id);
      if (content == nullptr || !seen.insert(id).second) continue;
      auto parents = parents_.find(id);
      if (parents == parents_.end()) {
        TRY_ASSIGN(auto links, reader::check_commit(*content));
        parents = parents_.emplace(id, std::move(links.parents)).first;
      }
      pending.insert(pending.end(), parents->second.begin(), parents->second.end());
    }
    return seen.size();
  }

 private:
  const Received& received_;
  std::unordered_map<ObjectId, std::vector<ObjectId>, reader::ObjectIdHash> parents_;
};

// A name cannot be a branch and a directory of branches.
std::string why_not_made(const HomeRepository& home, const std::string& name, const Error& error) {
  for (std::size_t at = name.rfind('/'); at != std::string::npos; at = name.rfind('/', at - 1)) {
    const std::string above = name.substr(0, at);
    if (above == "refs" || above.empty()) break;
    if (home.reference(above)) return above + " stands where its directory would be";
  }
  return error.message();
}

Status set_references(const HomeRepository& home, CommitReport& report) {
  for (HomeBranch& branch : report.branches) {
    if (!branch.refused.empty() || home.reference(branch.reference) == branch.tip) continue;
    const Status made =
        home.set_reference(branch.reference, branch.tip, std::nullopt, "cofferdam: brought home");
    if (!made.ok()) branch.refused = why_not_made(home, branch.reference, made.error());
  }
  return {};
}

// Of tips that are here, those that nothing of the user's leads to.
Result<reader::ObjectIdSet> unheld_tips(const HomeRepository& home, const SandboxCommits& commits) {
  std::vector<ObjectId> here;
  for (const auto& [name, branch] : commits.branches) {
    if (branch.refused.empty() && !commits.received.holds(branch.tip)) here.push_back(branch.tip);
  }
  TRY_ASSIGN(const auto found, home.commits_of_nobody(here));
  return reader::ObjectIdSet(found.begin(), found.end());
}

Status list_branches(const SandboxRecord& sandbox, const HomeRepository& home,
                     const SandboxCommits& commits, CommitReport& report) {
  CommitCounter counter(commits.received);
  TRY_ASSIGN(const auto unheld, unheld_tips(home, commits));
  for (const auto& [name, branch] : commits.branches) {
    HomeBranch row{name, reference_of(sandbox, name), branch.tip, 0, false, branch.refused};
    if (row.refused.empty()) {
      TRY_ASSIGN(row.commits, counter.count(branch.tip));
    }
    const bool brought = home.reference(row.reference) == branch.tip;
    // A run that was killed, or a reference that could not be made.
    row.unheld = row.refused.empty() && !brought && unheld.contains(branch.tip);
    // What is here already, and was brought before or never left, is no news.
    const bool known = row.refused.empty() && row.commits == 0 && !row.unheld &&
                       (home.reference("refs/heads/" + name) == branch.tip || !brought);
    if (!known) report.branches.push_back(std::move(row));
  }
  for (const auto& [name, reason] : commits.refused) {
    report.branches.push_back({name, "", {}, 0, false, reason});
  }
  return {};
}

std::string plural(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

bool CommitReport::has_new() const {
  return std::any_of(branches.begin(), branches.end(), [](const HomeBranch& branch) {
    return branch.commits > 0 || branch.unheld || !branch.refused.empty();
  });
}

Result<CommitReport> bring_commits_home(const SandboxRecord& sandbox, const ReviewSession& session,
                                        Placement& placement, const CommitOptions& options) {
  CommitReport report;
  TRY_ASSIGN(const auto home, HomeRepository::open(sandbox.workspace, report.nothing));
  if (!home.has_value()) return report;
  TRY_ASSIGN(const auto layer, GitLayer::open(sandbox, *home));
  if (!layer.has_value()) {
    report.nothing = "the sandbox wrote nothing into the git directory";
    return report;
  }
  TRY_ASSIGN(report.left, layer->other_references(kMostLeft));
  TRY_ASSIGN(Receiving receiving, Receiving::begin(*home, options.dry_run));
  SecretsByObject found;
  auto commits = read_commits(options.reader, *layer, *home,
                              [&](ObjectType type, const ObjectId& id, std::string_view content) {
                                found.add(id, secrets_in(session.secrets, content));
                                return receiving.take(type, id, content);
                              });
  if (!commits.ok()) return commits.error();
  commits->secrets = std::move(found).take();
  TRY(list_branches(sandbox, *home, *commits, report));
  TRY(decide_fast_forward({session, *home, *commits, placement, options.allow_risky}, report));
  if (!report.has_new() && !report.move && report.refused.empty()) {
    report.nothing = "the sandbox made no commits that are not here";
  }
  if (options.dry_run) return report;
  if (report.has_new()) {
    std::vector<ObjectId> tips;
    for (const auto& [name, branch] : commits->branches) {
      if (branch.refused.empty()) tips.push_back(branch.tip);
    }
    TRY(receiving.finish(*home, reachable(commits->received, tips)));
  }
  home->refresh();
  TRY(set_references(*home, report));
  return report;
}

std::string describe(const CommitReport& report, bool dry_run) {
  const auto shown = [](std::string_view text) { return escape_for_terminal(text); };
  std::string left;
  for (const std::string& name : report.left) {
    left += "  left out: " + shown(name) + ": " + kWhyLeft + " (reference)\n";
  }
  if (!report.nothing.empty()) return "commits: " + shown(report.nothing) + "\n" + left;
  std::string text = dry_run ? "commits to be brought home:\n" : "commits brought home:\n";
  for (const HomeBranch& branch : report.branches) {
    if (!branch.refused.empty()) {
      text += "  " + shown(branch.name) + ": refused: " + shown(branch.refused) + "\n";
    } else {
      text += "  " + shown(branch.name) + ": " +
              (branch.commits == kMostCounted ? "at least " : "") +
              plural(branch.commits, "commit") + ", " + shown(branch.reference) + "\n";
    }
  }
  if (report.branches.empty()) text += "  none that are not here\n";
  text += left;
  for (const Change& change : report.risky) {
    text +=
        "  in them: " + shown(change.path) + "  (look at it: " + shown(change.risk.reason) + ")\n";
  }
  if (!report.refused.empty()) {
    text += "no fast-forward: " + shown(report.refused) +
            "\n  without --commits only the files come home\n";
  } else if (report.move) {
    text += (dry_run ? "would fast-forward " : "fast-forward of ") + shown(report.move->branch) +
            " by " + plural(report.ahead, "commit") + "\n";
  }
  return text;
}

Json to_json(const CommitReport& report) {
  Json branches = Json::array();
  for (const HomeBranch& branch : report.branches) {
    Json row = {{"branch", to_json_text(branch.name)}, {"commits", branch.commits}};
    if (branch.refused.empty()) {
      row["tip"] = reader::to_hex(branch.tip);
      row["reference"] = to_json_text(branch.reference);
    } else {
      row["refused"] = to_json_text(branch.refused);
    }
    branches.push_back(std::move(row));
  }
  Json left = Json::array();
  for (const std::string& name : report.left) {
    left.push_back({{"reference", to_json_text(name)}, {"reason", kWhyLeft}});
  }
  Json json = {{"branches", std::move(branches)}, {"left_out", std::move(left)}};
  if (!report.nothing.empty()) json["nothing"] = report.nothing;
  if (!report.refused.empty()) json["refused"] = to_json_text(report.refused);
  if (report.move) {
    json["fast_forward"] = {{"branch", report.move->branch},
                            {"before", reader::to_hex(report.move->before)},
                            {"after", reader::to_hex(report.move->after)},
                            {"commits", report.ahead}};
  }
  return json;
}

}  // namespace cofferdam::orchestrator::changes
