#include "orchestrator/runner.h"

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace cofferdam::orchestrator {
namespace {

#ifdef COFFERDAM_FAULTS
// Tests walk over every step: COFFERDAM_FAULT=fail:N lets step N fail, kill:N and undo:N end this
// process by SIGKILL before step N is applied or undone. Only in cofferdam-faulty, of the tests.
bool is_asked_for(std::string_view fault, std::size_t step) {
  const char* text = std::getenv("COFFERDAM_FAULT");
  if (text == nullptr) return false;
  const std::string_view asked(text);
  if (!asked.starts_with(fault)) return false;
  std::size_t number = 0;
  const char* const end = asked.data() + asked.size();
  const auto [rest, error] = std::from_chars(asked.data() + fault.size(), end, number);
  return error == std::errc() && rest == end && number == step;
}
#else
constexpr bool is_asked_for(std::string_view /*fault*/, std::size_t /*step*/) {
  return false;
}
#endif

}  // namespace

Status Runner::apply(std::vector<Step> steps) {
  for (Step& step : steps) {
    if (is_asked_for("kill:", done_.size())) (void)std::raise(SIGKILL);
    auto applied =
        is_asked_for("fail:", done_.size()) ? Status(Error("asked to fail")) : step.apply();
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
    if (is_asked_for("undo:", done_.size() - 1)) (void)std::raise(SIGKILL);
    const Step step = std::move(done_.back());
    done_.pop_back();
    if (step.undo) step.undo();
  }
}

}  // namespace cofferdam::orchestrator
