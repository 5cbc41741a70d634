#include "egressproxy/status_report.h"

#include <functional>

namespace cofferdam::egressproxy {
namespace {

// Rules whose budgets are told one by one: a policy may have 100,000.
constexpr std::size_t kMaxRuleSeries = 1000;

WallTime wall_time_of(Clock::time_point time) {
  return std::chrono::system_clock::now() -
         std::chrono::duration_cast<WallTime::duration>(Clock::now() - time);
}

// A budget's remainder, null where it has no limit.
Json left_of(const Account& account, Direction direction) {
  const auto i = static_cast<std::size_t>(direction);
  return account.limit[i] == Account::kUnlimited ? Json() : Json(account.left[i]);
}

Json account_report(const Account& account) {
  return {{"connections", account.live},
          {"connections_opened", account.opened},
          {"bytes_up", account.used(Direction::kUp)},
          {"bytes_down", account.used(Direction::kDown)},
          {"bytes_up_left", left_of(account, Direction::kUp)},
          {"bytes_down_left", left_of(account, Direction::kDown)},
          {"budgets", policy::to_json(account.budget)}};
}

// One metric after the other, each with its head.
class Exposition final {
 public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = "cofferdam_egress_" + std::string(name);
    text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " +
             std::string(type) + "\n";
  }
  // `labels`: pairs of a name and a value; values are escaped here.
  void sample(std::uint64_t value,
              std::initializer_list<std::pair<std::string_view, std::string_view>> labels = {}) {
    text_ += name_;
    char separator = '{';
    for (const auto& [label, content] : labels) {
      text_ += separator;
      text_ += label;
      text_ += "=\"";
      append_escaped(content);
      text_ += '"';
      separator = ',';
    }
    if (separator == ',') text_ += '}';
    text_ += " " + std::to_string(value) + "\n";
  }
  void one(std::string_view name, std::string_view type, std::string_view help,
           std::uint64_t value) {
    begin(name, type, help);
    sample(value);
  }
  std::string take() { return std::move(text_); }

 private:
  void append_escaped(std::string_view content) {
    for (const char c : content) {
      if (c == '\\' || c == '"') text_ += '\\';
      if (c == '\n') {
        text_ += "\\n";
      } else {
        text_ += c;
      }
    }
  }
  std::string name_;
  std::string text_;
};

void expose_decisions(Exposition& out, const Recorder& recorder) {
  out.begin("decisions_total", "counter", "Decisions by verdict, reason and protocol.");
  recorder.for_each_count([&out](policy::Verdict verdict, policy::Reason reason,
                                 std::string_view protocol, std::uint64_t count) {
    out.sample(count, {{"verdict", policy::to_text(verdict)},
                       {"reason", policy::to_text(reason)},
                       {"protocol", protocol}});
  });
}

void expose_budgets(Exposition& out, Budgets& budgets) {
  std::vector<const Account*> accounts = budgets.accounts();
  if (accounts.size() > kMaxRuleSeries) accounts.resize(kMaxRuleSeries);
  accounts.insert(accounts.begin(), &budgets.sandbox());
  out.begin("budget_bytes_left", "gauge",
            "Bytes that a rule, or the sandbox (no rule), may still carry; only where limited.");
  for (const Account* account : accounts) {
    for (const Direction direction : {Direction::kUp, Direction::kDown}) {
      const auto i = static_cast<std::size_t>(direction);
      if (account->limit[i] == Account::kUnlimited) continue;
      out.sample(account->left[i],
                 {{"rule", account->rule}, {"direction", i == 0 ? "up" : "down"}});
    }
  }
  out.begin("rule_bytes_total", "counter", "Bytes carried by each rule that was used.");
  for (std::size_t i = 1; i < accounts.size(); ++i) {
    out.sample(accounts[i]->used(Direction::kUp),
               {{"rule", accounts[i]->rule}, {"direction", "up"}});
    out.sample(accounts[i]->used(Direction::kDown),
               {{"rule", accounts[i]->rule}, {"direction", "down"}});
  }
  out.begin("rule_connections", "gauge", "Connections of each rule that was used.");
  for (std::size_t i = 1; i < accounts.size(); ++i) {
    out.sample(accounts[i]->live, {{"rule", accounts[i]->rule}});
  }
}

}  // namespace

Json stats_report(const StatusSources& sources) {
  Pipeline& pipeline = sources.pipeline;
  const Counters& counters = pipeline.recorder().counters();
  return {{"accepted", sources.server.accepted()},
          {"sessions", sources.server.sessions()},
          {"refused_sessions", sources.server.refused()},
          {"connections", pipeline.connections().size()},
          {"allowed", counters.allowed},
          {"denied", counters.denied},
          {"failed", counters.failed},
          {"dns_questions", counters.dns_questions},
          {"dns_questions_sent", sources.resolver.questions_sent()},
          {"bytes_up", pipeline.budgets().sandbox().used(Direction::kUp)},
          {"bytes_down", pipeline.budgets().sandbox().used(Direction::kDown)},
          {"pinned_addresses", pipeline.pins().size()},
          {"events_written", pipeline.recorder().written()},
          {"events_lost", pipeline.recorder().lost()},
          {"policy",
           {{"revision", sources.policy.revision()},
            {"manifest", pipeline.policy().manifest()},
            {"rules", pipeline.policy().rules().size()},
            {"deny", pipeline.policy().deny_rules().size()}}},
          {"sandbox", account_report(pipeline.budgets().sandbox())}};
}

Json connections_report(const StatusSources& sources) {
  Json list = Json::array();
  sources.pipeline.connections().for_each([&list](const Connection& connection) {
    const ConnectionInfo& info = connection.info();
    list.push_back({{"id", connection.id()},
                    {"protocol", info.protocol ? policy::to_text(*info.protocol) : ""},
                    {"host", info.endpoint.host.text()},
                    {"port", info.endpoint.port},
                    {"address", info.address ? Json(info.address->to_text()) : Json()},
                    {"rule", info.decision.rule},
                    {"bytes_up", connection.meter().moved(Direction::kUp)},
                    {"bytes_down", connection.meter().moved(Direction::kDown)},
                    {"since", to_rfc3339(wall_time_of(connection.since()))}});
  });
  return {{"connections", std::move(list)}};
}

std::string metrics_report(const StatusSources& sources) {
  Pipeline& pipeline = sources.pipeline;
  Exposition out;
  expose_decisions(out, pipeline.recorder());
  out.one("accepted_total", "counter", "Connections accepted at the gate.",
          sources.server.accepted());
  out.one("refused_sessions_total", "counter", "Connections refused because there were too many.",
          sources.server.refused());
  out.one("sessions", "gauge", "Connections at the gate now.", sources.server.sessions());
  out.one("connections", "gauge", "Connections to servers now.", pipeline.connections().size());
  out.begin("bytes_total", "counter", "Bytes carried to (up) and from (down) servers.");
  out.sample(pipeline.budgets().sandbox().used(Direction::kUp), {{"direction", "up"}});
  out.sample(pipeline.budgets().sandbox().used(Direction::kDown), {{"direction", "down"}});
  out.one("dns_questions_total", "counter", "Questions of the workload to the gate's name server.",
          pipeline.recorder().counters().dns_questions);
  out.one("dns_upstream_questions_total", "counter", "Questions to the name servers outside.",
          sources.resolver.questions_sent());
  out.one("resolver_cache_entries", "gauge", "Answers that are kept.",
          sources.resolver.kept_answers());
  out.one("resolver_cache_hits_total", "counter", "Lookups that a kept answer served.",
          sources.resolver.cache_hits());
  out.one("pinned_addresses", "gauge", "Addresses that the workload was given.",
          pipeline.pins().size());
  out.one("events_written_total", "counter", "Events written.", pipeline.recorder().written());
  out.one("events_lost_total", "counter", "Events that could not be written.",
          pipeline.recorder().lost());
  out.one("policy_revision", "gauge", "1 at the start, one more with each change of the policy.",
          sources.policy.revision());
  out.one("policy_rules", "gauge", "Rules of the policy.", pipeline.policy().rules().size());
  expose_budgets(out, pipeline.budgets());
  return out.take();
}

}  // namespace cofferdam::egressproxy
