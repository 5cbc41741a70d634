// SecretScanner: finds secrets in bytes, by their values where those are known and by the forms of
// well-known tokens (policies/secrets.json). Pure; a value; shared by any number of searches.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/secrets/known_secret.h"

namespace cofferdam::orchestrator::secrets {

extern const char* const kSecretFormsJson;

struct SecretMatch {
  std::size_t at = 0;
  std::size_t length = 0;
  std::string_view what;  // "a GitHub token", "the value of DEPLOY_TOKEN"; lives with the scanner
};

class SecretScanner final {
 public:
  // The longest text that is found as one secret; longer ones are found by their beginning.
  static constexpr std::size_t kLongest = 16U << 10U;

  // An unknown key or set of characters in the table is an error.
  static Result<SecretScanner> make(std::string_view forms_json,
                                    const std::vector<KnownSecret>& known);
  static Result<SecretScanner> built_in(const std::vector<KnownSecret>& known) {
    return make(kSecretFormsJson, known);
  }

  // The first match at or after `from`; length 0: none. With `more`, the text goes on: `undecided`
  // becomes where the first thing begins that only what follows decides, or the text's size; a
  // match that begins there or later is not told.
  SecretMatch find(std::string_view text, std::size_t from, bool more,
                   std::size_t& undecided) const;

 private:
  using Set = std::bitset<256>;
  struct Form {
    std::string what;
    Set of;                 // empty: a text that is known as it stands
    std::size_t least = 0;  // of them after the prefix
    std::size_t most = 0;   // 0: any number
    std::string with;       // must stand in it
    std::string block_end;  // everything up to this marker
  };
  struct Prefix {
    std::string text;
    std::size_t form = 0;
    bool wraps = false;  // lines may end in it
  };
  enum class Verdict : std::uint8_t { kNo, kYes, kOpen };
  Verdict judge(const Prefix& prefix, std::string_view text, std::size_t at, bool more,
                std::size_t& length) const;
  static Verdict judge_wrapped(std::string_view prefix, std::string_view text, bool more,
                               std::size_t& length);
  static Verdict judge_run(const Form& form, std::string_view text, std::size_t at,
                           std::size_t prefix, bool more, std::size_t& length);
  void add(const std::string& prefix, std::size_t form, bool wraps);
  void add_pair(char first, char second);
  static Result<Set> set_of(std::string_view name);

  std::vector<Form> forms_;
  std::array<std::vector<Prefix>, 256> by_first_;
  std::vector<std::uint64_t> pairs_;  // first two bytes of a prefix: one bit for each pair
};

// Streams: calls `found` for each secret, across the borders of pieces.
class SecretSearch final {
 public:
  using Found = std::function<void(std::string_view secret, std::string_view what)>;
  SecretSearch(const SecretScanner& scanner, Found found)
      : scanner_(scanner), found_(std::move(found)) {}
  void feed(std::string_view piece) { run(piece, true); }
  void finish() { run({}, false); }

 private:
  void run(std::string_view piece, bool more);
  const SecretScanner& scanner_;
  Found found_;
  std::string held_;
  std::size_t context_ = 0;  // bytes of held_ that were judged, kept for what stands before a match
};

// Streams with every secret replaced by "[redacted: what]". What may be the beginning of one is
// held back until it is decided: at most kLongest bytes.
class SecretRedactor final {
 public:
  using Out = std::function<Status(std::string_view)>;
  explicit SecretRedactor(const SecretScanner& scanner) : scanner_(scanner) {}
  Status feed(std::string_view piece, const Out& out) { return run(piece, true, out); }
  // What is held back is let go, as it is unless it is a secret.
  Status finish(const Out& out) { return run({}, false, out); }
  bool holds_back() const { return held_.size() > context_; }
  std::uint64_t redacted() const { return redacted_; }

 private:
  Status run(std::string_view piece, bool more, const Out& out);
  const SecretScanner& scanner_;
  std::string held_;
  std::size_t context_ = 0;  // already given out
  std::uint64_t redacted_ = 0;
};

}  // namespace cofferdam::orchestrator::secrets
