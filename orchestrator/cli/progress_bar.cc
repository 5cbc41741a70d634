#include "orchestrator/cli/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/os/terminal.h"

namespace cofferdam::orchestrator::cli {
namespace {

constexpr std::chrono::milliseconds kFirst{500};
constexpr std::chrono::milliseconds kBetween{100};
constexpr std::size_t kWidth = 24;

bool can_show() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) != "dumb" && os::is_terminal(STDERR_FILENO);
}

}  // namespace

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), shown_(can_show()), next_(Clock::now() + kFirst) {}

ProgressBar::~ProgressBar() {
  if (anything_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::tell(std::uint64_t done, std::uint64_t total) {
  if (!shown_ || total == 0) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kBetween;
  anything_ = true;
  if (done > total) done = total;
  const auto filled = static_cast<std::size_t>(done * kWidth / total);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  const std::string line = "\r\x1b[K" + what_ + " [" + bar + "] " + std::to_string(done) + " of " +
                           std::to_string(total);
  std::fputs(line.c_str(), stderr);
}

}  // namespace cofferdam::orchestrator::cli
