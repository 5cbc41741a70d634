// `cofferdam top`: the user's sandboxes, and what each is doing, until it is interrupted.
//
// Connections are asked of egressproxy, bytes of fsproxy, decisions are read from the events. What
// does not answer is told as unknown: the table never waits for a sandbox that hangs.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "common/base/escape.h"
#include "common/base/text_time.h"
#include "common/os/signal_fd.h"
#include "common/os/terminal.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/pager.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/sandbox_activity.h"
#include "orchestrator/summary.h"

namespace cofferdam::orchestrator::cli {
namespace {

constexpr std::chrono::seconds kInterval{2};
constexpr const char* kWholeScreen = "\x1b[H\x1b[2J";

struct Options {
  bool all = false;
  bool json = false;
};

const char* colour_of(const SandboxActivity& activity) {
  if (activity.orphan) return "\x1b[31m";
  switch (activity.record.state) {
    case SandboxState::kRunning:
      return "\x1b[32m";
    case SandboxState::kPending:
    case SandboxState::kStopping:
      return "\x1b[33m";
    case SandboxState::kFailed:
      return "\x1b[31m";
    case SandboxState::kTerminated:
      return "\x1b[2m";
  }
  return "";
}

std::string age_text(const SandboxRecord& record) {
  const auto since = parse_rfc3339(record.created);
  const auto until = parse_rfc3339(record.ended);
  if (!since) return "?";
  const auto end = until ? *until : std::chrono::system_clock::now();
  return duration_text(std::chrono::duration_cast<std::chrono::seconds>(end - *since));
}

std::string number_text(const std::optional<std::uint64_t>& number) {
  return number ? std::to_string(*number) : "?";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string row_of(const SandboxActivity& activity, bool colour) {
  const SandboxRecord& record = activity.record;
  const std::string state =
      padded(activity.orphan ? "orphan" : std::string(to_text(record.state)), 10);
  const std::string shown = colour ? std::string(colour_of(activity)) + state + "\x1b[0m" : state;
  return escape_for_terminal(padded(record.name.substr(0, 20), 20)) + "  " + shown + "  " +
         padded(record.engine, 6) + "  " + padded(age_text(record), 10) + "  " +
         padded(number_text(activity.connections), 5) + "  " +
         padded(std::to_string(activity.denied), 6) + "  " +
         padded(activity.upper_bytes ? bytes_text(*activity.upper_bytes) : "?", 10) + "  " +
         escape_for_terminal(activity.last_denied);
}

Json to_json(const SandboxActivity& activity) {
  const SandboxRecord& record = activity.record;
  return {{"id", record.id},
          {"name", record.name},
          {"state", to_text(record.state)},
          {"orphan", activity.orphan},
          {"engine", record.engine},
          {"created", record.created},
          {"ended", record.ended},
          {"connections", activity.connections ? Json(*activity.connections) : Json()},
          {"denied", activity.denied},
          {"allowed", activity.allowed},
          {"last_denied", activity.last_denied},
          {"upper_bytes", activity.upper_bytes ? Json(*activity.upper_bytes) : Json()},
          {"upper_bytes_limit", activity.upper_limit ? Json(*activity.upper_limit) : Json()}};
}

// Lines that fit the window; what does not is counted.
void print_table(const std::vector<SandboxActivity>& all, bool colour, std::size_t rows) {
  std::string out = padded("NAME", 20) + "  " + padded("STATE", 10) + "  ENGINE  " +
                    padded("AGE", 10) + "  CONNS  DENIED  UPPER       LAST DENIED\n";
  std::size_t shown = 0;
  for (const SandboxActivity& activity : all) {
    if (shown++ < rows) out += row_of(activity, colour) + "\n";
  }
  if (shown > rows) out += "… and " + std::to_string(shown - rows) + " more\n";
  if (all.empty()) out += "No sandbox runs; --all shows those that have ended.\n";
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
}

int watch(const SandboxStore& store, const Options& options) {
  ActivityReader reader(store);
  const auto signals = os::SignalFd::create({SIGINT, SIGTERM, SIGHUP, SIGWINCH});
  if (!signals.ok()) return fail(signals.error());
  const bool colour = stdout_takes_colour();
  for (;;) {
    const auto all = reader.read(options.all);
    if (!all.ok()) return fail(all.error());
    const std::size_t rows = os::terminal_rows(STDOUT_FILENO).value_or(24);
    std::fputs(kWholeScreen, stdout);
    print_table(*all, colour, rows > 3 ? rows - 3 : 1);
    pollfd entry{signals->fd(), POLLIN, 0};
    (void)::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(kInterval).count()));
    while (const auto number = signals->next()) {
      if (*number != SIGWINCH) return *number == SIGINT ? 0 : 128 + *number;
    }
  }
}

int top(const Options& options) {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  if (!options.json && os::is_terminal(STDOUT_FILENO)) return watch(*store, options);
  const auto all = ActivityReader(*store).read(options.all);
  if (!all.ok()) return fail(all.error());
  if (!options.json) {
    print_table(*all, false, all->size());
    return 0;
  }
  Json list = Json::array();
  for (const SandboxActivity& activity : *all) list.push_back(to_json(activity));
  print_json({{"sandboxes", std::move(list)}});
  return 0;
}

}  // namespace

void add_top(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "top", "Watch the sandboxes that run: connections, denials, size (not on a terminal: once)");
  command->add_flag("--all", options->all, "Those that have ended too");
  command->add_flag("--json", options->json, "One JSON object, once");
  command->callback([&context, options] { context.action = [options] { return top(*options); }; });
}

}  // namespace cofferdam::orchestrator::cli
