#include "orchestrator/runner.h"

#include <utility>

namespace cofferdam::orchestrator {

Status Runner::apply(std::vector<Step> steps) {
  for (Step& step : steps) {
    auto applied = step.apply();
    if (!applied.ok()) {
      undo_all();
      return applied.error().context(step.name);
    }
    done_.push_back(std::move(step));
  }
  return {};
}

void Runner::undo_all() {
  while (!done_.empty()) {
    const Step step = std::move(done_.back());
    done_.pop_back();
    if (step.undo) step.undo();
  }
}

}  // namespace cofferdam::orchestrator
