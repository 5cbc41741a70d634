#include <filesystem>
#include <memory>
#include <vector>

#include "common/os/files.h"
#include "common/policy/egress_policy.h"
#include "common/policy/fs_rules.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/summary.h"

namespace cofferdam::orchestrator::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> arguments;  // [S] [PATH]
  std::string host;
};

constexpr std::size_t kLastEvents = 10;

// A word that names no sandbox but a file that is there is a path, too.
bool is_path(const Context& context, const std::string& argument) {
  if (argument.find('/') != std::string::npos || argument.starts_with(".")) return true;
  std::error_code code;
  return !find_sandbox(context, argument).ok() && fs::exists(context.directory / argument, code);
}

Result<Json> read_json(const fs::path& file) {
  TRY_ASSIGN(const std::string text, os::read_file(file));
  return parse_json(text).context(file.string());
}

std::string decision_text(const policy::Decision& decision) {
  return std::string(to_text(decision.verdict)) + ", " + std::string(to_text(decision.reason)) +
         (decision.rule.empty() ? "" : " (" + decision.rule + ")");
}

// The last decisions that `wanted` takes, oldest first.
Status print_last(const SandboxRecord& record, const std::function<bool(const Json&)>& wanted) {
  std::vector<std::string> last;
  TRY_ASSIGN(const std::uint64_t end, for_each_event(record.events(), 0, [&](const Json& event) {
               if (event_text(event, "verdict").empty() || !wanted(event)) return;
               last.push_back("  " + event_text(event, "time") + "  " +
                              event_text(event, "verdict") + "  " + describe_act(event) + "  " +
                              event_text(event, "reason"));
               if (last.size() > kLastEvents) last.erase(last.begin());
             }));
  (void)end;
  if (last.empty()) print_line("No event about it yet.");
  for (const std::string& line : last) print_line(line);
  return {};
}

Status why_host(const SandboxRecord& record, const std::string& text) {
  TRY_ASSIGN(const Json json, read_json(record.egress_policy()));
  TRY_ASSIGN(const policy::EgressPolicy policy, policy::EgressPolicy::from_json(json));
  TRY_ASSIGN(const policy::Endpoint endpoint, policy::parse_endpoint(text, 443));
  const policy::EndpointDecision decision = policy.decide_endpoint(endpoint);
  print_line(endpoint.text() + ": " + decision_text(decision.decision));
  if (decision.decision.allowed()) {
    std::string protocols;
    for (const auto protocol :
         {policy::Protocol::kTls, policy::Protocol::kHttp, policy::Protocol::kTcp}) {
      if (decision.protocols.has(protocol))
        protocols += " " + std::string(policy::to_text(protocol));
    }
    print_line("  as" + protocols + "; its addresses are checked when it is resolved");
  } else if (decision.decision.reason == policy::Reason::kNoRule ||
             decision.decision.reason == policy::Reason::kPortNotAllowed) {
    print_line("  to allow: cofferdam run --allow " +
               (endpoint.port == 443 ? endpoint.host.text() : endpoint.text()) + " …");
  }
  const std::string host = endpoint.host.text();
  return print_last(record, [&](const Json& event) { return event_text(event, "host") == host; });
}

Status why_path(const Context& context, const SandboxRecord& record, const std::string& text) {
  TRY_ASSIGN(const Json json, read_json(record.fs_policy()));
  const fs::path path = (context.directory / text).lexically_normal();
  const Json* best = nullptr;
  std::string inside;
  try {
    for (const Json& mount : json.at("mounts")) {
      const fs::path at = mount.at("path").get<std::string>();
      const std::string rest = path.lexically_relative(at).string();
      if (rest.empty() || rest == ".." || rest.starts_with("../")) continue;
      if (best != nullptr && at.string().size() < best->at("path").get<std::string>().size())
        continue;
      best = &mount;
      inside = rest == "." ? "" : rest;
    }
    if (best == nullptr) {
      print_line(path.string() +
                 ": in no mount of the sandbox; the kernel decides (a system file, "
                 "read only, or nothing at all)");
      return {};
    }
    TRY_ASSIGN(const policy::FsRules rules, policy::FsRules::parse(best->at("rules")));
    std::error_code code;
    const policy::FsDecision decision = rules.decide(inside, fs::is_directory(path, code));
    std::string what = !decision.visible()      ? "does not exist inside"
                       : !best->at("writable")  ? "can be read; the mount is read only"
                       : !decision.changeable() ? "can be read, not changed"
                                                : "can be read and changed (copy on write)";
    if (!decision.rule.empty()) {
      what +=
          ", " + std::string(to_text(decision.action)) + " (" + std::string(decision.rule) + ")";
    }
    print_line(path.string() + ": " + what);
  } catch (const Json::exception& error) {
    return Error(error.what()).context(record.fs_policy().string());
  }
  const std::string mount = best->at("name").get<std::string>();
  return print_last(record, [&](const Json& event) {
    return event_text(event, "mount") == mount && event_text(event, "path") == inside;
  });
}

Status why_sandbox(const SandboxRecord& record) {
  print_line(record.name + " (" + record.id + "): " + std::string(to_text(record.state)) +
             (record.message.empty() ? "" : ", " + record.message));
  Summary summary;
  TRY_ASSIGN(const std::uint64_t end,
             for_each_event(record.events(), 0, [&](const Json& event) { summary.add(event); }));
  (void)end;
  const std::vector<std::string> lines = summary.lines();
  if (lines.empty()) print_line("Nothing was denied and nothing was reached.");
  for (const std::string& line : lines) print_line(line);
  return {};
}

int why(const Context& context, const Options& options) {
  std::string selector = "last";
  std::string path;
  for (const std::string& argument : options.arguments) {
    (is_path(context, argument) ? path : selector) = argument;
  }
  const auto record = find_sandbox(context, selector);
  if (!record.ok()) return fail(record.error());
  Status done;
  if (!options.host.empty()) {
    done = why_host(*record, options.host);
  } else if (!path.empty()) {
    done = why_path(context, *record, path);
  } else {
    done = why_sandbox(*record);
  }
  return done.ok() ? 0 : fail(done.error());
}

}  // namespace

void add_why(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("why", "Say why something was or would be refused");
  command->add_option("S|PATH", options->arguments, "Sandbox (default: last) and, or, a path")
      ->expected(0, 2);
  command->add_option("--host", options->host, "HOST[:PORT]");
  command->callback([&context, options] {
    context.action = [&context, options] { return why(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
