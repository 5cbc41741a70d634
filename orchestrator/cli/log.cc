#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "common/base/escape.h"
#include "common/os/files.h"
#include "common/os/terminal.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/summary.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string selector;
  bool follow = false;
  bool egress = false;
  bool files = false;
  bool json = false;
  bool output = false;
};

// What the commands of a detached sandbox printed: bytes as they are for a program, escaped for a
// person.
Result<std::uint64_t> print_output(const SandboxRecord& record, std::uint64_t offset) {
  auto fd = os::open_file(record.output(), O_RDONLY);
  if (!fd.ok() && fd.error().error_number() == ENOENT) {
    return Error(record.name + " was not detached: what it printed went to its terminal");
  }
  if (!fd.ok()) return fd.error();
  if (::lseek(fd->get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    return Error::from_errno(record.output().string());
  }
  TRY_ASSIGN(const std::string bytes, os::read_fd(fd->get()));
  const bool person = os::is_terminal(STDOUT_FILENO);
  const std::string shown = person ? escape_for_terminal(bytes, true) : bytes;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  return offset + bytes.size();
}

bool is_wanted(const Options& options, const Json& event) {
  if (!options.egress && !options.files) return true;
  const std::string service = event_text(event, "service");
  return (options.egress && service == "egressproxy") || (options.files && service == "fsproxy");
}

void print_event(const Options& options, const Json& event) {
  if (!is_wanted(options, event)) return;
  if (options.json) {
    std::fputs((printable_json(event, -1) + "\n").c_str(), stdout);
    return;
  }
  const std::string verdict = event_text(event, "verdict");
  std::string line = event_text(event, "time") + "  " + event_text(event, "service") + "  ";
  if (verdict.empty()) {
    line += event_text(event, "event");
    for (const auto& [key, value] : event.items()) {
      if (key == "time" || key == "service" || key == "event" || key == "sandbox" ||
          key == "operation" || key == "manifest") {
        continue;
      }
      line += "  " + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    }
  } else {
    line += verdict + "  " + describe_act(event) + "  " + event_text(event, "reason");
    if (const std::string rule = event_text(event, "rule"); !rule.empty())
      line += " (" + rule + ")";
    if (event.contains("bytes_down")) {
      line += "  " + bytes_text(event_number(event, "bytes_up")) + " up, " +
              bytes_text(event_number(event, "bytes_down")) + " down";
    }
  }
  print_line(line);
}

int show_log(const Context& context, const Options& options) {
  const auto record = find_sandbox(context, options.selector);
  if (!record.ok()) return fail(record.error());
  std::uint64_t offset = 0;
  for (;;) {
    // The state is read before the events: what is written before the end is seen.
    const auto now = find_sandbox(context, record->id);
    const auto read = options.output
                          ? print_output(*record, offset)
                          : for_each_event(record->events(), offset,
                                           [&](const Json& event) { print_event(options, event); });
    if (!read.ok()) return fail(read.error());
    offset = *read;
    std::fflush(stdout);
    if (!options.follow || !now.ok() || now->ended_for_good()) return 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace

void add_log(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("log", "Print the events of a sandbox");
  command->add_option("S", options->selector, "Sandbox: id, name or last")->required();
  command->add_flag("--follow", options->follow, "Go on until the sandbox has ended");
  command->add_flag("--egress", options->egress, "Only egressproxy's");
  command->add_flag("--files", options->files, "Only fsproxy's");
  command->add_flag("--json", options->json, "JSON lines");
  command->add_flag("--output", options->output,
                    "Not the events: what the commands of a detached sandbox printed");
  command->callback([&context, options] {
    context.action = [&context, options] { return show_log(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
