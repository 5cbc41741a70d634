// IgnoreRules: what the user's own repository ignores. Only ours is ever asked: the user's
// .gitignore files, .git/info/exclude, core.excludesFile, and the index (what is tracked is never
// ignored). A sandbox's .gitignore has no say. No command is run; libgit2 reads. Copies share what
// was read.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"

namespace cofferdam::orchestrator::changes {

class IgnoreRules final {
 public:
  // A workspace that lies in no repository ignores nothing.
  static Result<IgnoreRules> open(const std::string& workspace);

  // Whether `path` itself matches and is not tracked; its ancestors are the caller's business. A
  // directory is only ignored as a whole when nothing below it is tracked.
  bool is_ignored(const std::string& path, bool directory) const;

  // Whether all that was asked could be answered: the index is only read when a path matches a
  // rule, and what follows from one that cannot be read must not be used.
  Status check() const;

 private:
  struct State;
  explicit IgnoreRules(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace cofferdam::orchestrator::changes
