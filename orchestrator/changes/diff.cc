#include "orchestrator/changes/diff.h"

#include <algorithm>

#include "common/base/escape.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/patch.h"
#include "orchestrator/changes/renames.h"
#include "orchestrator/changes/session.h"
#include "orchestrator/changes/text_hunks.h"

namespace cofferdam::orchestrator::changes {
namespace {

std::string objects(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " object" : " objects");
}

// What a patch has no form for, as a line of its own.
std::string one_line(const Change& change) {
  std::string text = "# " + std::string(to_text(change.kind)) + " ";
  const ObjectState& shown = change.theirs.absent() ? change.base : change.theirs;
  text += std::string(to_text(shown.kind)) + " " + escape_for_terminal(change.path);
  if (change.kind == ChangeKind::kMode) {
    text += ": mode " + octal(change.base.mode) + " -> " + octal(change.theirs.mode);
  } else if (change.kind == ChangeKind::kAdded && shown.kind != layer::Kind::kSymlink) {
    text += " (mode " + octal(shown.mode) + ")";
  }
  return text + "\n";
}

class DiffWriter final {
 public:
  DiffWriter(const ReviewSession& session, const ChangeSet& set, bool colour, const Sink& out)
      : session_(session), set_(set), away_(set.renamed_away()), colour_(colour), out_(out) {}

  Status patch() {
    TRY(risks());
    for (const std::size_t i : set_.by_risk()) {
      const Change& change = set_.changes[i];
      if (away_.contains(i)) continue;
      TRY_ASSIGN(const PatchResult result, write_one(i, out_));
      const bool shown = result.written == PatchResult::Written::kWhole ||
                         result.written == PatchResult::Written::kPartly;
      if (!shown) TRY(out_(one_line(change)));
      if (!shown && result.written == PatchResult::Written::kNone &&
          change.kind != ChangeKind::kMode) {
        TRY(out_("#   " + result.note + "\n"));
      }
      if (result.written == PatchResult::Written::kPartly && !change.theirs.absent()) {
        TRY(out_("# mode " + octal(change.base.mode) + " -> " + octal(change.theirs.mode) + "\n"));
      }
    }
    return left_out();
  }

  Status stat() {
    TRY(risks());
    std::uint64_t added = 0;
    std::uint64_t removed = 0;
    for (const std::size_t i : set_.by_risk()) {
      const Change& change = set_.changes[i];
      if (away_.contains(i)) continue;
      TRY_ASSIGN(const PatchResult result, write_one(i, [](std::string_view) { return Status(); }));
      std::string line = " " + shown_name(i, " => ") + " | ";
      if (result.binary) {
        line += "Bin " + std::to_string(change.base.size) + " -> " +
                std::to_string(change.theirs.size) + " bytes";
      } else if (set_.renames.contains(i) && result.lines_added + result.lines_removed == 0) {
        line += "renamed";
      } else if (result.lines_added + result.lines_removed > 0) {
        line +=
            "+" + std::to_string(result.lines_added) + " -" + std::to_string(result.lines_removed);
      } else {
        line += to_text(change.kind);
      }
      added += result.lines_added;
      removed += result.lines_removed;
      TRY(out_(line + "\n"));
    }
    TRY(out_(" " + std::to_string(set_.changes.size()) + " changed, " + std::to_string(added) +
             " lines added, " + std::to_string(removed) + " removed\n"));
    return left_out();
  }

  Status name_status() {
    for (const std::size_t i : set_.by_risk()) {
      if (away_.contains(i)) continue;
      std::string letter(1, status_letter(set_.changes[i].kind));
      if (const auto rename = set_.renames.find(i); rename != set_.renames.end()) {
        const std::string digits = std::to_string(rename->second.similarity);
        letter = "R" + std::string(3 - digits.size(), '0') + digits;
      }
      TRY(out_(letter + "\t" + shown_name(i, "\t") + "\n"));
    }
    return {};
  }

 private:
  Result<PatchResult> write_one(std::size_t i, const Sink& out) const {
    const Change& change = set_.changes[i];
    const PatchStyle style{true, colour_};
    const auto rename = set_.renames.find(i);
    auto written = rename == set_.renames.end()
                       ? write_patch(session_.view, change, style, out)
                       : write_rename(session_.view, set_.changes[rename->second.from], change,
                                      rename->second.similarity, style, out);
    return std::move(written).context(change.path);
  }

  // Its path; of a rename both.
  std::string shown_name(std::size_t i, const std::string& between) const {
    std::string name = escape_for_terminal(set_.changes[i].path);
    const auto rename = set_.renames.find(i);
    if (rename == set_.renames.end()) return name;
    return escape_for_terminal(set_.changes[rename->second.from].path) + between + name;
  }

  Status risks() {
    for (const std::size_t i : set_.by_risk()) {
      const Change& change = set_.changes[i];
      if (change.risk.level == RiskLevel::kNone) return {};
      const bool refused = change.risk.level == RiskLevel::kNeedsAllowance;
      TRY(out_(coloured(colour_, refused ? "1;31" : "33",
                        "! " + escape_for_terminal(change.path) + ": " + change.risk.reason +
                            (refused ? " (merge wants --allow-risky)" : "") + "\n")));
    }
    return {};
  }

  Status left_out() {
    for (const Omission& omission : set_.omissions) {
      TRY(out_("# left out: " + escape_for_terminal(omission.path) + ": " +
               escape_for_terminal(omission.detail) + " (" + omission.reason + ", " +
               objects(omission.entries) + ")\n"));
    }
    for (const Ignored& ignored : set_.ignored) {
      TRY(out_("# ignored by your rules: " + escape_for_terminal(ignored.path) + " (" +
               objects(ignored.entries) + ")\n"));
    }
    return {};
  }

  const ReviewSession& session_;
  const ChangeSet& set_;
  std::map<std::size_t, std::size_t> away_;
  bool colour_;
  const Sink& out_;
};

}  // namespace

Status write_diff(const SandboxRecord& sandbox, DiffForm form,
                  const std::vector<std::string>& paths, bool colour, const Sink& out) {
  TRY_ASSIGN(const ReviewSession session, ReviewSession::open(sandbox));
  TRY_ASSIGN(ChangeSet set, session.collect());
  const auto other = [&](const auto& entry) { return !is_selected(entry.path, paths); };
  std::erase_if(set.changes, other);
  std::erase_if(set.omissions, other);
  std::erase_if(set.ignored, other);
  TRY(find_renames(session.view, set));
  // What is shown is redacted; what is stored (export) is not.
  secrets::SecretRedactor redactor(session.secrets);
  const Sink shown = [&](std::string_view bytes) { return redactor.feed(bytes, out); };
  DiffWriter writer(session, set, colour, shown);
  const auto write = [&]() -> Status {
    switch (form) {
      case DiffForm::kPatch:
        return writer.patch();
      case DiffForm::kStat:
        return writer.stat();
      case DiffForm::kNameStatus:
        return writer.name_status();
      case DiffForm::kJson:
        break;
    }
    Json json = to_json(set);
    json["sandbox"] = sandbox.id;
    json["name"] = sandbox.name;
    return shown(printable_json(json, 2) + "\n");
  };
  TRY(write());
  return redactor.finish(out);
}

}  // namespace cofferdam::orchestrator::changes
