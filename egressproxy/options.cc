#include "egressproxy/options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/policy/host_name.h"

namespace cofferdam::egressproxy {

Result<ListenAt> parse_listen(const std::string& text) {
  const auto equals = text.find('=');
  const Error wrong("--listen '" + text + "': write dns=ADDRESS:PORT or explicit=ADDRESS:PORT");
  if (equals == std::string::npos) return wrong;
  const std::string role = text.substr(0, equals);
  if (role != "dns" && role != "explicit") return wrong;
  const auto endpoint = policy::parse_endpoint(text.substr(equals + 1));
  if (!endpoint || endpoint->host.is_name()) return wrong;
  return ListenAt{role == "dns" ? Role::kDns : Role::kExplicit, endpoint->host.address(),
                  endpoint->port};
}

Result<std::optional<Options>> parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> listen;
  std::vector<std::string> deadlines;
  CLI::App app("The gate of a sandbox: decides every connection by name and by address.",
               "cofferdam-egressproxy");
  app.set_version_flag("--version", COFFERDAM_VERSION);
  app.add_option("--policy", options.policy_file, "egress.json")->required();
  app.add_option("--gate-fd", options.gate_fds, "a listening socket of the sandbox; repeatable")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--listen", listen, "ROLE=ADDRESS:PORT, role dns or explicit; repeatable");
  app.add_option("--events-fd", options.events_fd, "the event file, open for appending");
  app.add_option("--events", options.events_file, "the event file's name, instead of --events-fd");
  app.add_option("--ready-fd", options.ready_fd, "a pipe that is told when the gate enforces");
  app.add_option("--liveness-fd", options.liveness_fd, "a pipe whose end is this service's end");
  app.add_option("--control-fd", options.control_fd,
                 "a listening Unix socket for health and stats");
  app.add_option("--uid", options.uid, "the user to become when started by root");
  app.add_option("--gid", options.gid, "the group to become when started by root");
  app.add_option("--deadline", deadlines, "NAME=MILLISECONDS: waits shorter; repeatable");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app.exit(asked);
    return std::optional<Options>();
  } catch (const CLI::Error& error) {
    return Error(error.what());
  }
  for (const std::string& text : listen) {
    TRY_ASSIGN(const ListenAt at, parse_listen(text));
    options.listen.push_back(at);
  }
  for (const std::string& text : deadlines) TRY(shorten_deadline(options.deadlines, text));
  if (options.gate_fds.empty() && options.listen.empty()) {
    return Error("nothing to serve: give --gate-fd or --listen");
  }
  if (!options.gate_fds.empty() && !options.listen.empty()) {
    return Error("--gate-fd and --listen exclude each other");
  }
  if (options.events_fd >= 0 && !options.events_file.empty()) {
    return Error("--events and --events-fd exclude each other");
  }
  if (!options.gate_fds.empty() && options.events_fd < 0) {
    return Error("a sandbox's gate needs --events-fd");
  }
  return std::optional<Options>(std::move(options));
}

}  // namespace cofferdam::egressproxy
