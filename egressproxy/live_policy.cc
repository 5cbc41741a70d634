#include "egressproxy/live_policy.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

bool same_servers(const policy::EgressPolicy& one, const policy::EgressPolicy& other) {
  return one.resolve_timeout_ms() == other.resolve_timeout_ms() &&
         one.uses_hosts_file() == other.uses_hosts_file() &&
         std::equal(one.servers().begin(), one.servers().end(), other.servers().begin(),
                    other.servers().end(), [](const auto& a, const auto& b) {
                      return a.address == b.address && a.port == b.port;
                    });
}

WallTime wall_now() {
  return std::chrono::system_clock::now();
}

}  // namespace

LivePolicy::LivePolicy(asio::io_context& context, Pipeline& pipeline)
    : pipeline_(pipeline), timer_(context) {}

void LivePolicy::start() {
  end_expired();
}

void LivePolicy::stop() {
  stopped_ = true;
  timer_.cancel();
}

Result<LivePolicy::Replaced> LivePolicy::replace(std::string_view text) {
  TRY_ASSIGN(policy::EgressPolicy policy, policy::EgressPolicy::parse(text));
  const policy::EgressPolicy& old = pipeline_.policy();
  if (policy.sandbox() != old.sandbox()) {
    return Error("policy: it is for the sandbox '" + policy.sandbox() + "', and this is '" +
                 old.sandbox() + "'");
  }
  if (!same_servers(policy, old)) {
    return Error("policy: the resolver is only read at the start and cannot be another one now");
  }
  const std::size_t ended = install(policy.without_expired(wall_now()));
  const policy::EgressPolicy& now = pipeline_.policy();
  pipeline_.recorder().set_manifest(now.manifest());
  pipeline_.recorder().note("policy_replaced", {{"revision", revision_},
                                                {"rules", now.rules().size()},
                                                {"deny", now.deny_rules().size()},
                                                {"connections_ended", ended}});
  arm();
  return Replaced{revision_, ended};
}

std::size_t LivePolicy::install(policy::EgressPolicy policy) {
  ++revision_;
  return pipeline_.replace_policy(std::make_shared<const policy::EgressPolicy>(std::move(policy)));
}

void LivePolicy::end_expired() {
  const policy::EgressPolicy& policy = pipeline_.policy();
  const WallTime now = wall_now();
  if (const auto next = policy.next_expiry(); next && *next <= now) {
    Json expired = Json::array();
    for (const policy::EgressRule& rule : policy.rules()) {
      if (rule.expires && *rule.expires <= now) {
        expired.push_back({{"rule_id", rule.id}, {"text", to_text(rule)}});
      }
    }
    const std::size_t ended = install(policy.without_expired(now));
    for (Json& rule : expired) {
      rule["revision"] = revision_;
      rule["connections_ended"] = ended;
      pipeline_.recorder().note("rule_expired", rule);
    }
  }
  arm();
}

void LivePolicy::arm() {
  timer_.cancel();
  const auto next = pipeline_.policy().next_expiry();
  if (!next || stopped_) return;
  const auto left = std::chrono::ceil<milliseconds>(*next - wall_now());
  timer_.expires_after(std::clamp(left, milliseconds(1), kLongestWait));
  timer_.async_wait([this](const error_code& error) {
    if (!error && !stopped_) end_expired();
  });
}

}  // namespace cofferdam::egressproxy
