#include "orchestrator/changes/artifacts.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/os/files.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/risk.h"
#include "orchestrator/changes/session.h"
#include "orchestrator/changes/tar_writer.h"
#include "orchestrator/changes/upper_walk.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::size_t kMaxFiles = 1'000'000;
constexpr std::uint64_t kMaxHoles = std::uint64_t{8} << 30U;

struct ArtifactRule {
  std::vector<std::string> paths;
  Json about;  // owner, classification, retention
};

struct Found {
  UpperEntry entry;
  std::size_t rule = 0;
};

Result<std::vector<ArtifactRule>> rules_of(const SandboxRecord& sandbox) {
  TRY_ASSIGN(const std::string text, os::read_file(sandbox.directory / "manifest.json"));
  TRY_ASSIGN(const Json manifest, parse_json(text).context("manifest.json"));
  std::vector<ArtifactRule> rules;
  const Json rows =
      manifest.is_object() ? manifest.value("artifacts", Json::array()) : Json::array();
  for (const Json& row : rows) {
    ArtifactRule rule;
    rule.about = Json::object();
    for (const auto& [key, value] : row.items()) {
      if (key == "paths") {
        for (const Json& path : value) rule.paths.push_back(path.get<std::string>());
      } else if (!value.is_null()) {
        rule.about[key] = value;
      }
    }
    rules.push_back(std::move(rule));
  }
  if (rules.empty()) return Error("the sandbox's manifest names no artifacts (`artifacts:`)");
  return rules;
}

// One pattern after the other, so that the last one that matches says whose it is.
Result<policy::FsRules> patterns_of(const std::vector<ArtifactRule>& rules) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (std::size_t k = 0; k < rules[i].paths.size(); ++k) {
      rows.push_back({{"id", std::to_string(i) + "/" + std::to_string(k)},
                      {"action", "writable"},
                      {"pattern", rules[i].paths[k]}});
    }
  }
  return policy::FsRules::parse(rows);
}

class ArtifactWriter final {
 public:
  ArtifactWriter(const ReviewSession& session, std::vector<ArtifactRule> rules,
                 policy::FsRules patterns, Placement placement, const Sink& out)
      : session_(session),
        rules_(std::move(rules)),
        patterns_(std::move(patterns)),
        placement_(std::move(placement)),
        tar_([this, &out](std::string_view bytes) -> Status {
          hash_.update(bytes);
          bytes_ += bytes.size();
          return out(bytes);
        }) {}

  Result<ArtifactReport> write(const SandboxRecord& sandbox) {
    TRY(look());
    for (const auto& [path, found] : found_) TRY(write_one(path, found).context(path));
    TRY(tar_.finish());
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      for (std::size_t k = 0; k < rules_[i].paths.size(); ++k) {
        const std::string id = std::to_string(i) + "/" + std::to_string(k);
        if (!matched_.contains(id)) report_.unmatched.push_back(rules_[i].paths[k]);
      }
    }
    Json omitted = Json::array();
    for (const Omission& omission : report_.omissions) omitted.push_back(to_json(omission));
    report_.manifest = {{"version", 1},
                        {"sandbox", sandbox.id},
                        {"name", sandbox.name},
                        {"manifest", sandbox.manifest},
                        {"tar", {{"bytes", bytes_}, {"sha256", to_hex(hash_.finish())}}},
                        {"artifacts", std::move(rows_)},
                        {"omitted", std::move(omitted)},
                        {"without_a_match", report_.unmatched}};
    return std::move(report_);
  }

 private:
  void omit(const std::string& path, const char* reason, const std::string& detail) {
    report_.omissions.push_back({path, reason, detail, 1});
  }

  Status look() {
    return walk_upper(session_.view.upper(),
                      [&](const std::string& path, const UpperEntry& entry) -> Result<Visit> {
                        return visit(path, entry);
                      });
  }

  Result<Visit> visit(const std::string& path, const UpperEntry& entry) {
    const bool is_dir = entry.kind == layer::Kind::kDirectory;
    const Top* top = placement_.top_of(path, is_dir);
    if (entry.whiteout || (top != nullptr && top->place != Place::kIgnored)) return Visit::kSkip;
    const policy::FsDecision decision = patterns_.decide(path, is_dir);
    if (decision.action != policy::FsAction::kWritable || is_dir) return Visit::kEnter;
    const std::string id(decision.rule);
    matched_.insert(id);
    if (!entry.problem.empty()) {
      omit(path, "unreadable", entry.problem);
    } else if (entry.kind != layer::Kind::kFile && entry.kind != layer::Kind::kSymlink) {
      omit(path, "special_file", "a FIFO, socket or device stays behind");
    } else if (entry.holes > kMaxHoles - holes_) {
      omit(path, "mostly_holes", std::to_string(entry.size) + " bytes, nearly all of them holes");
    } else if (found_.size() == kMaxFiles) {
      return Error("more than " + std::to_string(kMaxFiles) + " artifacts");
    } else {
      holes_ += entry.holes;
      const std::size_t rule = std::stoul(id.substr(0, id.find('/')));
      found_[path] = {entry, rule};
    }
    return Visit::kSkip;
  }

  Status add_parents(std::string_view path) {
    const std::string_view parent = os::parent_of(path);
    if (parent.empty() || directories_.contains(std::string(parent))) return {};
    TRY(add_parents(parent));
    directories_.emplace(parent);
    return tar_.add_directory(std::string(parent));
  }

  Status write_one(const std::string& path, const Found& found) {
    Sha256 hash;
    std::uint64_t size = found.entry.size;
    std::map<std::string, std::string> secrets;
    secrets::SecretSearch search(session_.secrets, [&](std::string_view, std::string_view what) {
      secrets.emplace(what, "");
    });
    const auto content = [&](const Sink& sink) {
      return session_.view.read_theirs(path, [&](std::string_view bytes) -> Status {
        hash.update(bytes);
        search.feed(bytes);
        return sink(bytes);
      });
    };
    if (found.entry.kind == layer::Kind::kSymlink) {
      std::string text;
      TRY(content([&](std::string_view bytes) {
        text += bytes;
        return Status();
      }));
      if (text.empty() || link_escapes(path, text)) {
        omit(path, "link_out", "a link that leads out of the archive stays behind");
        return {};
      }
      size = text.size();
      TRY(add_parents(path));
      TRY(tar_.add_link(path, text));
    } else {
      TRY(add_parents(path));
      TRY(tar_.add_file(path, (found.entry.mode & 0111U) != 0, size, content));
    }
    search.finish();
    ++report_.files;
    Json row = path_to_json(path);
    row["kind"] = to_text(found.entry.kind);
    row["size"] = size;
    row["sha256"] = to_hex(hash.finish());
    row["mode"] = found.entry.kind == layer::Kind::kSymlink ? "0777"
                  : (found.entry.mode & 0111U) != 0         ? "0755"
                                                            : "0644";
    for (const auto& [key, value] : rules_[found.rule].about.items()) row[key] = value;
    if (!secrets.empty()) {
      row["secrets"] = Json::array();
      for (const auto& [what, nothing] : secrets) row["secrets"].push_back(what);
    }
    rows_.push_back(std::move(row));
    return {};
  }

  const ReviewSession& session_;
  std::vector<ArtifactRule> rules_;
  policy::FsRules patterns_;
  Placement placement_;
  Sha256 hash_;
  std::uint64_t bytes_ = 0;
  TarWriter tar_;
  std::map<std::string, Found> found_;
  std::set<std::string> matched_;
  std::set<std::string> directories_;
  std::uint64_t holes_ = 0;
  Json rows_ = Json::array();
  ArtifactReport report_;
};

}  // namespace

Result<ArtifactReport> export_artifacts(const SandboxRecord& sandbox, const Sink& out) {
  TRY_ASSIGN(const ReviewSession session, ReviewSession::open(sandbox));
  TRY_ASSIGN(auto rules, rules_of(sandbox));
  TRY_ASSIGN(auto patterns, patterns_of(rules));
  Placement placement = session.placement();
  ArtifactWriter writer(session, std::move(rules), std::move(patterns), std::move(placement), out);
  return writer.write(sandbox);
}

}  // namespace cofferdam::orchestrator::changes
