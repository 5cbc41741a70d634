#include "orchestrator/verify/verify.h"

#include <algorithm>
#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/verify/leftovers.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string manifest;
  std::string engine;
  std::string image;
  bool json = false;
};

std::string padded(std::string text, std::size_t width) {
  constexpr std::size_t kWidest = 60;
  if (text.size() > kWidest) text.resize(kWidest);
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text + "  ";
}

void print_table(const verify::Report& report) {
  print_line(padded("AREA", 10) + padded("ATTACK", 46) + padded("EXPECTED BOUNDARY", 26) +
             padded("RESULT", 14) + padded("EVENT", 28) + "WHAT HAPPENED");
  for (const verify::Finding& finding : report.findings) {
    print_line(padded(finding.area, 10) + padded(finding.attack, 46) +
               padded(finding.boundary, 26) + padded(verify::to_text(finding.verdict), 14) +
               padded(finding.event, 28) +
               (finding.control.empty() ? finding.happened : "control: " + finding.control));
  }
  print_line(std::to_string(report.findings.size()) +
             " attacks: " + std::to_string(report.count(verify::Verdict::kHeld)) + " held, " +
             std::to_string(report.count(verify::Verdict::kBroken)) + " broken, " +
             std::to_string(report.count(verify::Verdict::kControlFailed)) +
             " whose control failed, " + std::to_string(report.count(verify::Verdict::kNotTried)) +
             " not tried");
}

int run_verify(const Context& context, const Options& options) {
  verify::Query query;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) query.run_flags.insert(query.run_flags.end(), {flag, value});
  };
  // A file is named from here; a name without a slash that is no file may be a template's.
  std::error_code code;
  const auto file = context.directory / options.manifest;
  const bool is_file = !options.manifest.empty() && std::filesystem::exists(file, code);
  add("--manifest", is_file ? file.string() : options.manifest);
  add("--engine", options.engine);
  add("--image", options.image);
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  query.state = state_directory(*store);
  for (const std::string& text : verify::reap_ranges(query.state).failed) note("reap " + text);
  const auto report = verify::verify(query);
  if (!report.ok()) return fail(report.error());
  if (options.json) {
    print_json(verify::to_json(*report));
  } else {
    print_table(*report);
  }
  return report->held() ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Context& context) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Attack a sandbox made from your manifest, and tell what stopped each attack");
  command->add_option("--manifest", o->manifest, "Manifest file; default: yours");
  command->add_option("--engine", o->engine, "native or docker")
      ->check(CLI::IsMember({"native", "docker"}));
  command->add_option("--image", o->image, "Local image of engine docker");
  command->add_flag("--json", o->json, "One JSON object");
  command->callback(
      [&context, o] { context.action = [&context, o] { return run_verify(context, *o); }; });
}

}  // namespace cofferdam::orchestrator::cli
