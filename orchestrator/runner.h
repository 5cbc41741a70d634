// Runner: applies steps in order and undoes them in reverse.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

// One reversible act. `undo` is only called after `apply` succeeded, never fails and may be empty.
// A step whose apply fails leaves nothing behind.
struct Step {
  std::string name;
  std::function<Status()> apply;
  std::function<void()> undo;
};

class Runner final {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() { undo_all(); }

  // Applies every step. When one fails the earlier ones are undone, and the error names the step.
  Status apply(std::vector<Step> steps);
  void undo_all();

 private:
  std::vector<Step> done_;
};

}  // namespace cofferdam::orchestrator
