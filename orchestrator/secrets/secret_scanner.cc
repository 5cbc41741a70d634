#include "orchestrator/secrets/secret_scanner.h"

#include <algorithm>
#include <set>

#include "common/base/json_text.h"

namespace cofferdam::orchestrator::secrets {
namespace {

constexpr std::size_t kPairs = 1U << 16U;
// What may stand between two lines of one text, at most.
constexpr std::size_t kMostBreak = 64;

std::size_t byte(char c) {
  return static_cast<unsigned char>(c);
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

std::size_t pair_of(char first, char second) {
  return byte(first) * 256 + byte(second);
}

Result<std::string> text_of(const Json& row, const char* key) {
  if (!row.contains(key)) return std::string();
  if (!row[key].is_string()) return Error(std::string("secret forms: ") + key + " is no text");
  return row[key].get<std::string>();
}

// Where the end of a line, indentation and colours (ESC "[" … "m") that begin at `at` end.
std::size_t after_break(std::string_view text, std::size_t at) {
  const std::size_t end = std::min(text.size(), at + kMostBreak);
  while (at < end) {
    if (text[at] == '\x1b') {
      while (at < end && text[at] != 'm') ++at;
      if (at < end) ++at;
    } else if (text[at] == '\n' || text[at] == '\r' || text[at] == ' ' || text[at] == '\t') {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

std::size_t number_of(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_number_unsigned() ? row[key].get<std::size_t>() : 0;
}

}  // namespace

Result<SecretScanner::Set> SecretScanner::set_of(std::string_view name) {
  Set set;
  const auto add_range = [&](char first, char last) {
    for (std::size_t c = byte(first); c <= byte(last); ++c) set.set(c);
  };
  const auto add_all = [&](std::string_view letters) {
    for (const char c : letters) set.set(byte(c));
  };
  add_range('0', '9');
  if (name == "hex") {
    add_all("abcdefABCDEF");
    return set;
  }
  add_range('A', 'Z');
  if (name == "upper") return set;
  add_range('a', 'z');
  if (name == "alnum") return set;
  if (name == "word") {
    add_all("_");
  } else if (name == "dash") {
    add_all("_-");
  } else if (name == "dotted") {
    add_all("_-.");
  } else if (name == "base64") {
    add_all("+/=_-");
  } else {
    return Error("secret forms: unknown set of characters " + std::string(name));
  }
  return set;
}

void SecretScanner::add_pair(char first, char second) {
  const std::size_t pair = pair_of(first, second);
  pairs_[pair / 64] |= std::uint64_t{1} << (pair % 64);
}

void SecretScanner::add(const std::string& prefix, std::size_t form, bool wraps) {
  by_first_[byte(prefix[0])].push_back({prefix, form, wraps});
  add_pair(prefix[0], prefix[1]);
  if (!wraps) return;
  add_pair(prefix[0], '\n');
  add_pair(prefix[0], '\r');
  add_pair(prefix[0], '\x1b');
}

Result<SecretScanner> SecretScanner::make(std::string_view forms_json,
                                          const std::vector<KnownSecret>& known) {
  TRY_ASSIGN(const Json table, parse_json(forms_json).context("secret forms"));
  if (!table.is_object() || table.value("version", 0) != 1 || !table.contains("forms") ||
      !table["forms"].is_array()) {
    return Error("secret forms: not version 1");
  }
  static const std::set<std::string> kKeys = {"id",   "what", "prefix", "of",    "least",
                                              "most", "with", "block",  "source"};
  SecretScanner scanner;
  scanner.pairs_.resize(kPairs / 64);
  // Known values first: they are told by their names.
  for (const KnownSecret& secret : known) {
    Form form;
    form.what = "the value of " + secret.name;
    scanner.forms_.push_back(std::move(form));
    for (const auto& [text, wraps] : spellings_of(secret.value)) {
      if (text.size() <= kLongest) scanner.add(text, scanner.forms_.size() - 1, wraps);
    }
  }
  for (const Json& row : table["forms"]) {
    if (!row.is_object()) return Error("secret forms: a row that is no object");
    for (const auto& [key, value] : row.items()) {
      if (!kKeys.contains(key)) return Error("secret forms: unknown key " + key);
    }
    Form form;
    TRY_ASSIGN(form.what, text_of(row, "what"));
    TRY_ASSIGN(form.with, text_of(row, "with"));
    TRY_ASSIGN(form.block_end, text_of(row, "block"));
    TRY_ASSIGN(const std::string source, text_of(row, "source"));
    TRY_ASSIGN(const std::string of, text_of(row, "of"));
    if (form.what.empty() || source.empty()) return Error("secret forms: a row without its source");
    if (form.block_end.empty()) {
      TRY_ASSIGN(form.of, set_of(of));
      form.least = number_of(row, "least");
      form.most = number_of(row, "most");
      if (form.least == 0) return Error("secret forms: " + form.what + " has no least length");
    }
    scanner.forms_.push_back(std::move(form));
    if (!row.contains("prefix") || !row["prefix"].is_array()) {
      return Error("secret forms: a row without a prefix");
    }
    for (const Json& prefix : row["prefix"]) {
      if (!prefix.is_string() || prefix.get<std::string>().size() < 2) {
        return Error("secret forms: a prefix that is too short");
      }
      scanner.add(prefix.get<std::string>(), scanner.forms_.size() - 1, false);
    }
  }
  for (auto& prefixes : scanner.by_first_) {
    std::stable_sort(prefixes.begin(), prefixes.end(), [](const Prefix& a, const Prefix& b) {
      return a.text.size() > b.text.size();
    });
  }
  return scanner;
}

SecretScanner::Verdict SecretScanner::judge_run(const Form& form, std::string_view text,
                                                std::size_t at, std::size_t prefix, bool more,
                                                std::size_t& length) {
  // In the middle of a longer word it is none.
  if (at > 0 && (is_letter_or_digit(text[at - 1]) || form.of[byte(text[at - 1])]) &&
      is_letter_or_digit(text[at])) {
    return Verdict::kNo;
  }
  std::size_t end = at + prefix;
  const std::size_t longest = at + kLongest;
  while (end < text.size() && end < longest && form.of[byte(text[end])]) ++end;
  const std::size_t run = end - at - prefix;
  if (form.most != 0 && run > form.most) return Verdict::kNo;
  if (end == text.size() && end < longest && more) return Verdict::kOpen;
  if (run < form.least) return Verdict::kNo;
  const std::string_view all = text.substr(at, end - at);
  if (!form.with.empty() && all.find(form.with) == std::string_view::npos) return Verdict::kNo;
  length = end - at;
  return Verdict::kYes;
}

// Between two letters a line may end; the next may be indented, and in a diff it begins with a
// sign.
SecretScanner::Verdict SecretScanner::judge_wrapped(std::string_view prefix, std::string_view text,
                                                    bool more, std::size_t& length) {
  std::size_t at = 0;
  for (std::size_t letter = 0; letter < prefix.size();) {
    if (at >= kLongest) return Verdict::kNo;
    if (at == text.size()) return more ? Verdict::kOpen : Verdict::kNo;
    if (text[at] == prefix[letter]) {
      ++at;
      ++letter;
      continue;
    }
    const bool ends = text[at] == '\n' || text[at] == '\r' || text[at] == '\x1b';
    if (letter == 0 || !ends) return Verdict::kNo;
    at = after_break(text, at);
    if (at == text.size()) return more ? Verdict::kOpen : Verdict::kNo;
    // A sign that is no letter of what is looked for; where it may be one, the sign is doubled.
    const bool sign = text[at] == '+' || text[at] == '-';
    const bool doubled = at + 1 < text.size() && text[at + 1] == text[at];
    if (sign && at + 1 == text.size() && more) return Verdict::kOpen;
    if (sign && (text[at] != prefix[letter] || doubled)) ++at;
    if (at < text.size() && text[at] != prefix[letter]) return Verdict::kNo;
  }
  length = at;
  return Verdict::kYes;
}

SecretScanner::Verdict SecretScanner::judge(const Prefix& prefix, std::string_view text,
                                            std::size_t at, bool more, std::size_t& length) const {
  const std::string_view rest = text.substr(at);
  if (prefix.wraps) return judge_wrapped(prefix.text, rest, more, length);
  if (!rest.starts_with(prefix.text)) {
    const bool may_be = more && std::string_view(prefix.text).starts_with(rest);
    return may_be ? Verdict::kOpen : Verdict::kNo;
  }
  const Form& form = forms_[prefix.form];
  if (!form.block_end.empty()) {
    // No further than it may reach: what follows may be gigabytes, with many of these in it.
    const std::string_view block = rest.substr(0, kLongest);
    const std::size_t end = block.find(form.block_end, prefix.text.size());
    if (end == std::string_view::npos) {
      if (more && rest.size() < kLongest) return Verdict::kOpen;
      length = std::min(rest.size(), kLongest);
      return Verdict::kYes;
    }
    // To the end of the marker's line, which is "-----END … KEY-----".
    const std::size_t stop = block.find("-----", end + form.block_end.size());
    if (stop == std::string_view::npos && more && rest.size() < kLongest) return Verdict::kOpen;
    length = stop == std::string_view::npos ? block.size() : stop + 5;
    return Verdict::kYes;
  }
  if (form.of.any()) return judge_run(form, text, at, prefix.text.size(), more, length);
  length = prefix.text.size();
  return Verdict::kYes;
}

SecretMatch SecretScanner::find(std::string_view text, std::size_t from, bool more,
                                std::size_t& undecided) const {
  undecided = text.size();
  for (std::size_t at = from; at < text.size(); ++at) {
    if (at + 1 < text.size()) {
      const std::size_t pair = pair_of(text[at], text[at + 1]);
      if ((pairs_[pair / 64] & (std::uint64_t{1} << (pair % 64))) == 0) continue;
    }
    for (const Prefix& prefix : by_first_[byte(text[at])]) {
      std::size_t length = 0;
      switch (judge(prefix, text, at, more, length)) {
        case Verdict::kNo:
          break;
        case Verdict::kYes:
          return {at, length, forms_[prefix.form].what};
        case Verdict::kOpen:
          undecided = at;
          return {};
      }
    }
  }
  return {};
}

void SecretSearch::run(std::string_view piece, bool more) {
  held_ += piece;
  std::size_t at = context_;
  std::size_t undecided = 0;
  while (true) {
    const SecretMatch match = scanner_.find(held_, at, more, undecided);
    if (match.length == 0) break;
    found_(std::string_view(held_).substr(match.at, match.length), match.what);
    at = match.at + match.length;
  }
  const std::size_t judged = std::max(at, undecided);
  context_ = std::min<std::size_t>(judged, 1);
  held_.erase(0, judged - context_);
}

Status SecretRedactor::run(std::string_view piece, bool more, const Out& out) {
  held_ += piece;
  std::size_t at = context_;
  std::size_t undecided = 0;
  while (true) {
    const SecretMatch match = scanner_.find(held_, at, more, undecided);
    if (match.length == 0) break;
    ++redacted_;
    TRY(out(std::string_view(held_).substr(at, match.at - at)));
    TRY(out("[redacted: " + std::string(match.what) + "]"));
    at = match.at + match.length;
  }
  const std::size_t judged = std::max(at, undecided);
  if (judged > at) TRY(out(std::string_view(held_).substr(at, judged - at)));
  context_ = std::min<std::size_t>(judged, 1);
  held_.erase(0, judged - context_);
  return {};
}

}  // namespace cofferdam::orchestrator::secrets
