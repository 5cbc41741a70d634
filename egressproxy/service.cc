#include "egressproxy/service.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/log/event_log.h"
#include "common/os/files.h"
#include "common/os/pipes.h"
#include "egressproxy/cage.h"
#include "egressproxy/control.h"
#include "egressproxy/gate.h"
#include "egressproxy/server.h"

namespace cofferdam::egressproxy {
namespace {

// How long the last records may take to be written at the end, and how often it is asked whether
// anything is still to be recorded.
constexpr milliseconds kEndGrace{300};
constexpr milliseconds kEndLook{2};

Result<std::shared_ptr<const policy::EgressPolicy>> read_policy(const std::string& file) {
  TRY_ASSIGN(const std::string text, os::read_file(file));
  TRY_ASSIGN(policy::EgressPolicy policy, policy::EgressPolicy::parse(text).context(file));
  return std::shared_ptr<const policy::EgressPolicy>(
      std::make_shared<policy::EgressPolicy>(std::move(policy)));
}

Result<Resolver::Options> resolver_options(const policy::EgressPolicy& policy) {
  Resolver::Options options;
  options.servers = policy.servers();
  options.timeout = milliseconds(policy.resolve_timeout_ms());
  // Read now, also for a policy that may come later: afterwards no file can be.
  auto hosts = os::read_file("/etc/hosts");
  options.use_hosts = policy.uses_hosts_file();
  if (!hosts.ok() && options.use_hosts) return hosts.error();
  if (hosts.ok()) options.hosts_text = std::move(*hosts);
  // Where the proxy resolves, and is named by its address, nothing is looked up.
  const bool needless =
      policy.resolves_at_proxy() && !policy.upstream_proxy()->endpoint.host.is_name();
  if (!options.servers.empty() || needless) return options;
  TRY_ASSIGN(const std::string text, os::read_file("/etc/resolv.conf"));
  options.servers = servers_of_resolv_conf(text);
  if (options.servers.empty()) {
    return Error(
        "no name server: /etc/resolv.conf has none, and the policy's resolver.servers neither");
  }
  return options;
}

// The event file that was handed over, or the one that was named; none without a sandbox is fine.
Result<os::UniqueFd> open_events(const Options& options) {
  if (options.events_file.empty()) return os::UniqueFd(options.events_fd);
  os::UniqueFd fd(
      ::open(options.events_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return Error::from_errno(options.events_file);
  return fd;
}

// Ends the loop in order: no new connections, records of the old ones, then the end.
class Ending final {
 public:
  Ending(asio::io_context& context, const StatusSources& sources, Server& server,
         LivePolicy& policy, Control* control)
      : context_(context),
        sources_(sources),
        server_(server),
        policy_(policy),
        control_(control),
        look_(context) {}

  void begin(Status why) {
    if (begun_) return;
    begun_ = true;
    status_ = std::move(why);
    server_.stop();
    policy_.stop();
    if (control_ != nullptr) control_->stop();
    until_ = Clock::now() + kEndGrace;
    look(false);
  }
  const Status& status() const { return status_; }

 private:
  bool is_quiet() const {
    return server_.in_progress() == 0 && sources_.pipeline.connections().size() == 0 &&
           sources_.resolver.questions_under_way() == 0;
  }

  // Quiet for a whole look: what ended last has been written by then.
  void look(bool was_quiet) {
    const bool quiet = is_quiet();
    if ((quiet && was_quiet) || Clock::now() >= until_) {
      context_.stop();
      return;
    }
    look_.expires_after(kEndLook);
    look_.async_wait([this, quiet](const error_code&) { look(quiet); });
  }

  asio::io_context& context_;
  const StatusSources& sources_;
  Server& server_;
  LivePolicy& policy_;
  Control* control_;
  asio::steady_timer look_;
  Clock::time_point until_;
  Status status_;
  bool begun_ = false;
};

Async<void> end_with_liveness(asio::posix::stream_descriptor& liveness, Ending& ending) {
  std::array<char, 64> buffer{};
  while (true) {
    const auto [error, count] = co_await liveness.async_read_some(asio::buffer(buffer), kNoThrow);
    if (error) break;
  }
  ending.begin({});
}

Async<void> watch_addresses(HostAddresses& own, Ending& ending) {
  Status status = co_await own.watch();
  // Without knowing its own addresses the gate does not go on.
  ending.begin(std::move(status));
}

// Closes the pipe behind the word: nothing is said twice.
Status say_ready(os::UniqueFd& ready) {
  if (!ready) return {};
  Status said = os::write_all(ready.get(), "ready\n");
  ready.reset();
  return said;
}

Status serve(const Options& options, os::UniqueFd& ready) {
  TRY_ASSIGN(const auto policy, read_policy(options.policy_file));
  TRY_ASSIGN(const Resolver::Options resolving, resolver_options(*policy));
  const std::size_t max_sessions = Server::sessions_for(os::raise_descriptor_limit());
  std::unique_ptr<log::EventLog> events;
  TRY_ASSIGN(os::UniqueFd events_fd, open_events(options));
  if (events_fd) {
    events = std::make_unique<log::EventLog>(
        std::move(events_fd), log::EventContext{policy->sandbox(), policy->operation(),
                                                policy->manifest(), "egressproxy"});
  }
  // Outlives the loop: what the loop still holds at its end leaves the pipeline's lists.
  std::optional<Pipeline> pipeline;
  asio::io_context context(1);
  Readiness::of(context);  // what it needs is had now, or the start fails
  TRY_ASSIGN(const auto own, HostAddresses::open(context));
  TRY_ASSIGN(std::vector<GateSocket> gate, options.gate_fds.empty()
                                               ? open_gate(context, options.listen)
                                               : adopt_gate(context, options.gate_fds));
  std::unique_ptr<Control> control;
  if (options.control_fd >= 0) {
    TRY_ASSIGN(control, Control::adopt(context, options.control_fd, ::geteuid()));
  }
  asio::posix::stream_descriptor liveness(context);
  if (options.liveness_fd >= 0) liveness.assign(options.liveness_fd);

  Resolver resolver(context, resolving);
  Recorder recorder(events.get());
  recorder.write_per_turn(context);
  pipeline.emplace(policy, resolver, *own, recorder, options.deadlines);
  Server server(context, *pipeline, std::move(gate), max_sessions);
  LivePolicy live(context, *pipeline);
  const StatusSources sources{server, *pipeline, resolver, live};
  Ending ending(context, sources, server, live, control.get());
  asio::signal_set signals(context, SIGTERM, SIGINT);
  signals.async_wait([&ending](const error_code& error, int) {
    if (!error) ending.begin({});
  });

  TRY(enter_cage(options.uid, options.gid));
  asio::co_spawn(context, watch_addresses(*own, ending), asio::detached);
  if (liveness.is_open()) {
    asio::co_spawn(context, end_with_liveness(liveness, ending), asio::detached);
  }
  live.start();
  server.start();
  if (control) control->start(sources, live);
  TRY(say_ready(ready));
  context.run();
  return ending.status();
}

}  // namespace

Status run_service(const Options& options) {
  os::UniqueFd ready(options.ready_fd);
  Status status = serve(options, ready);
  if (!status.ok() && ready) {
    (void)os::write_all(ready.get(), "error: " + status.error().message() + "\n").ok();
  }
  return status;
}

}  // namespace cofferdam::egressproxy
