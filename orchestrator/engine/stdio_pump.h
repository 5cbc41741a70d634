// StdioPump: carries bytes between the user's stdin, stdout, stderr and the workload's, which are
// always pipes or a pty of the supervisor. Loses nothing, keeps the order of each stream, and never
// blocks: a user who does not read only holds the stream back.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/terminal.h"
#include "common/os/unique_fd.h"
#include "orchestrator/engine/poll_loop.h"
#include "orchestrator/secrets/secret_scanner.h"

namespace cofferdam::orchestrator {

class StdioPump final {
 public:
  // Pipes; without `interactive` stdin is /dev/null.
  static Result<StdioPump> with_pipes(bool interactive);
  // `master` is the pty's; with `interactive` a user's terminal becomes raw while the pump lives.
  static Result<StdioPump> with_terminal(os::UniqueFd master, bool interactive);

  // From now on the values of these secrets are replaced in what the workload prints; where that
  // goes to a terminal, the forms of well-known tokens too. A pipe or file gets everything else as
  // it is.
  Status redact(const std::vector<secrets::KnownSecret>& known);

  // At most this many bytes of both streams together reach the user; then a line that says so, and
  // the rest is read and dropped: the workload never waits for it.
  void limit_output(std::optional<std::uint64_t> bytes) { left_ = bytes; }
  // Bytes that reached the user so far.
  std::uint64_t passed() const { return passed_; }
  // True once, after the limit was reached.
  bool took_the_limit();

  // The workload's ends (none with a terminal); closed here by start().
  std::vector<int> workload_ends() const;
  // Watches everything in `loop`, which must outlive the pump, or stop() be called.
  void start(PollLoop& loop);
  void resize() const;  // the user's terminal changed its size

  // When what is held back, for it may be the beginning of a secret, is let go; nothing is held:
  // none.
  std::optional<PollLoop::Clock::time_point> next_release() const;
  void release_held(PollLoop& loop);

  // Everything that the workload wrote has been written to the user.
  bool drained() const;
  // Runs the loop until drained(), `deadline` (none: as long as it takes), or a callback of the
  // loop sets `give_up`.
  void drain(PollLoop& loop, std::optional<PollLoop::Clock::time_point> deadline,
             const bool& give_up);
  // The same until what has been written so far is passed on: a process that goes on may hold the
  // other end.
  void drain_present(PollLoop& loop, const bool& give_up);
  void stop(PollLoop& loop);

 private:
  struct Outflow {
    os::UniqueFd source;  // closed at its end
    int target = -1;
    std::string buffer;
    bool target_gone = false;
    std::optional<secrets::SecretRedactor> redactor;
    std::optional<PollLoop::Clock::time_point> release_at;
  };
  struct Inflow {
    int source = -1;      // -1: ended
    os::UniqueFd target;  // non-blocking; closed at the end of input
    std::string buffer;
    bool terminal = false;
  };

  StdioPump() = default;
  bool anything_present() const;
  void pass(Outflow& flow, bool ended);
  void take_from_limit(Outflow& flow);
  void read_output(PollLoop& loop, Outflow& flow);
  void write_output(PollLoop& loop, Outflow& flow);
  void watch_output(PollLoop& loop, Outflow& flow);
  void read_input(PollLoop& loop);
  void write_input(PollLoop& loop);
  void watch_input(PollLoop& loop);
  void end_input(PollLoop& loop);

  // Outlives the redactors.
  std::vector<std::unique_ptr<const secrets::SecretScanner>> scanners_;
  std::vector<os::UniqueFd> workload_ends_;
  std::array<Outflow, 2> outflows_;
  Inflow inflow_;
  os::UniqueFd master_;
  std::optional<os::RawTerminal> raw_;
  std::optional<std::uint64_t> left_;  // of the limit of output
  std::uint64_t passed_ = 0;
  bool limited_ = false;
  bool told_ = false;
};

}  // namespace cofferdam::orchestrator
