#include "orchestrator/reader/object_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "orchestrator/changes/forbidden_names.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::size_t kMaxName = 255;  // NAME_MAX
constexpr std::size_t kMaxParents = 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes the line that begins with `key` and a blank off `rest`; nothing when it is another one.
std::optional<std::string_view> take_line(std::string_view& rest, std::string_view key) {
  if (!rest.starts_with(key) || rest.size() <= key.size() || rest[key.size()] != ' ') {
    return std::nullopt;
  }
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view value = rest.substr(key.size() + 1, end - key.size() - 1);
  rest.remove_prefix(end + 1);
  return value;
}

// "Name <mail> seconds +hhmm" (fsck.c, fsck_ident).
Status check_identity(std::string_view text) {
  const std::size_t open = text.find_first_of("<>");
  if (open == std::string_view::npos || text[open] != '<') return Error("no mail address");
  if (open > 0 && text[open - 1] != ' ') return Error("no blank before the mail address");
  const std::size_t close = text.find_first_of("<>", open + 1);
  if (close == std::string_view::npos || text[close] != '>') return Error("a broken mail address");
  std::string_view rest = text.substr(close + 1);
  if (!rest.starts_with(' ')) return Error("no date");
  rest.remove_prefix(1);
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0 || digits > 18) return Error("a broken date");
  if (rest[0] == '0' && digits > 1) return Error("a date that begins with a zero");
  rest.remove_prefix(digits);
  const bool zone = rest.size() == 6 && rest[0] == ' ' && (rest[1] == '+' || rest[1] == '-') &&
                    std::all_of(rest.begin() + 2, rest.end(), is_digit);
  return zone ? Status() : Status(Error("a broken time zone"));
}

// Further header lines: "key value", and lines that go on with a blank (gpgsig, mergetag).
Status check_further_headers(std::string_view rest) {
  while (!rest.empty()) {
    if (rest[0] == '\n') return {};  // the message
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return Error("a header line without an end");
    const std::string_view line = rest.substr(0, end);
    const std::string_view key = line.substr(0, line.find(' '));
    if (key.size() == line.size()) return Error("a header line without a value");
    for (const std::string_view once : {"tree", "parent", "author", "committer"}) {
      if (key == once) return Error("a second or misplaced " + std::string(once));
    }
    rest.remove_prefix(end + 1);
  }
  return {};
}

struct Mode {
  std::string_view text;
  EntryKind kind;
};
constexpr std::array<Mode, 5> kModes = {{{"100644", EntryKind::kFile},
                                         {"100755", EntryKind::kExecutable},
                                         {"120000", EntryKind::kSymlink},
                                         {"40000", EntryKind::kTree},
                                         {"160000", EntryKind::kSubmodule}}};

// git's order (read-cache.c, base_name_compare): a tree's name as if a slash followed.
bool comes_before(const TreeEntry& a, const TreeEntry& b) {
  const std::size_t common = std::min(a.name.size(), b.name.size());
  const int order = a.name.substr(0, common).compare(b.name.substr(0, common));
  if (order != 0) return order < 0;
  const auto next = [&](const TreeEntry& entry) -> unsigned char {
    if (entry.name.size() > common) return static_cast<unsigned char>(entry.name[common]);
    return entry.kind == EntryKind::kTree ? '/' : 0;
  };
  return next(a) < next(b);
}

Status check_name(const TreeEntry& entry) {
  const std::string_view name = entry.name;
  if (name.empty()) return Error("an empty name");
  if (name.size() > kMaxName) return Error("a name that is longer than a file name may be");
  if (name == "." || name == "..") return Error("the name \"" + std::string(name) + "\"");
  if (name.find('/') != std::string_view::npos) return Error("a name with a slash");
  if (changes::is_dot_git(name)) {
    return Error("the name \"" + std::string(name) + "\", which some file system takes for .git");
  }
  if (entry.kind == EntryKind::kSymlink && changes::is_dot_gitmodules(name)) {
    return Error("a .gitmodules that is a link");
  }
  return {};
}

// What is_git_directory (setup.c) asks for.
bool is_repository(const std::vector<TreeEntry>& entries) {
  const auto has = [&](std::string_view wanted) {
    return std::any_of(entries.begin(), entries.end(), [&](const TreeEntry& entry) {
      return changes::folds_to(entry.name, wanted);
    });
  };
  return has("head") && ((has("objects") && has("refs")) || has("commondir"));
}

}  // namespace

Result<CommitLinks> check_commit(std::string_view content) {
  if (content.find('\0') != std::string_view::npos) return Error("it holds a NUL");
  CommitLinks links;
  std::string_view rest = content;
  const auto tree = take_line(rest, "tree");
  const auto tree_id = tree ? id_from_hex(*tree) : std::nullopt;
  if (!tree_id || tree_id->is_null()) return Error("no tree");
  links.tree = *tree_id;
  while (const auto parent = take_line(rest, "parent")) {
    const auto id = id_from_hex(*parent);
    if (!id || id->is_null()) return Error("a broken parent");
    if (links.parents.size() == kMaxParents) return Error("too many parents");
    links.parents.push_back(*id);
  }
  for (const char* who : {"author", "committer"}) {
    const auto line = take_line(rest, who);
    if (!line) return Error(std::string("no ") + who);
    TRY(check_identity(*line).context(who));
  }
  TRY(check_further_headers(rest));
  return links;
}

Result<std::vector<TreeEntry>> parse_tree(std::string_view content) {
  std::vector<TreeEntry> entries;
  while (!content.empty()) {
    const std::size_t blank = content.find(' ');
    const std::size_t end = blank == std::string_view::npos ? blank : content.find('\0', blank + 1);
    if (end == std::string_view::npos || content.size() - end - 1 < ObjectId::kSize) {
      return Error("an entry that is cut short");
    }
    const std::string_view text = content.substr(0, blank);
    // Old ones of git's have group bits.
    const auto* const mode = std::find_if(kModes.begin(), kModes.end(), [&](const Mode& known) {
      return known.text == (text == "100664" ? "100644" : text);
    });
    if (mode == kModes.end()) return Error("an unknown mode");
    TreeEntry entry;
    entry.kind = mode->kind;
    entry.mode_text = text;
    entry.name = content.substr(blank + 1, end - blank - 1);
    entry.id = *id_from_raw(content.substr(end + 1, ObjectId::kSize));
    entries.push_back(entry);
    content.remove_prefix(end + 1 + ObjectId::kSize);
  }
  return entries;
}

Result<std::vector<TreeEntry>> check_tree(std::string_view content) {
  TRY_ASSIGN(auto entries, parse_tree(content));
  std::unordered_set<std::string_view> names;
  const TreeEntry* before = nullptr;
  for (const TreeEntry& entry : entries) {
    if (entry.mode_text == "100664") return Error("an unknown mode");
    if (entry.id.is_null()) return Error("an entry without an object");
    TRY(check_name(entry));
    if (before != nullptr && !comes_before(*before, entry)) return Error("names out of order");
    if (!names.insert(entry.name).second) return Error("a name that stands twice");
    before = &entry;
  }
  if (is_repository(entries)) {
    return Error("a directory that git would take for a repository (HEAD, objects, refs)");
  }
  return entries;
}

std::uint32_t mode_of(EntryKind kind) {
  constexpr std::array<std::uint32_t, 5> kNumbers = {0100644, 0100755, 0120000, 040000, 0160000};
  return kNumbers[static_cast<std::size_t>(kind)];
}

}  // namespace cofferdam::orchestrator::reader
