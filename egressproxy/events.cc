#include "egressproxy/events.h"

#include "common/log/diagnostics.h"
#include "egressproxy/connections.h"
#include "egressproxy/refusal.h"

namespace cofferdam::egressproxy {
namespace {

Json decision_fields(const policy::Decision& decision) {
  return {{"verdict", policy::to_text(decision.verdict)},
          {"reason", policy::to_text(decision.reason)},
          {"rule", decision.rule},
          {"retryable", policy::is_retryable(decision.reason)}};
}

Json dropped_list(const std::vector<policy::DroppedAddress>& dropped) {
  Json list = Json::array();
  for (const auto& one : dropped) {
    list.push_back(
        {{"address", one.address.to_text()}, {"reason", policy::to_text(one.decision.reason)}});
  }
  return list;
}

}  // namespace

void conclude_decision(EgressRecord& record, const Stream& upstream) {
  const Connection* connection = upstream.connection();
  if (connection != nullptr && connection->ended()) record.decision = *connection->ended();
}

void conclude(EgressRecord& record, const Stream& upstream) {
  conclude_decision(record, upstream);
  const Connection* connection = upstream.connection();
  if (connection == nullptr) return;
  record.bytes_up = connection->meter().moved(Direction::kUp);
  record.bytes_down = connection->meter().moved(Direction::kDown);
}

void Recorder::count(policy::Verdict verdict) {
  if (verdict == policy::Verdict::kAllow) ++counters_.allowed;
  if (verdict == policy::Verdict::kDeny) ++counters_.denied;
  if (verdict == policy::Verdict::kError) ++counters_.failed;
}

void Recorder::write(std::string_view event, Json fields) {
  if (events_ == nullptr) return;
  const Status status = events_->write(event, std::move(fields));
  if (status.ok() || complained_) return;
  complained_ = true;
  spdlog::error("{}; new connections are refused from now on", status.error().message());
}

void Recorder::record(const EgressRecord& record) {
  count(record.decision.verdict);
  counters_.bytes_up += record.bytes_up;
  counters_.bytes_down += record.bytes_down;
  Json fields = decision_fields(record.decision);
  fields["host"] = record.host;
  fields["port"] = record.port;
  fields["address"] = record.address ? Json(record.address->to_text()) : Json(nullptr);
  fields["protocol"] = record.protocol;
  fields["via"] = record.via;
  fields["bytes_up"] = record.bytes_up;
  fields["bytes_down"] = record.bytes_down;
  fields["duration_ms"] =
      std::chrono::duration_cast<milliseconds>(Clock::now() - record.since).count();
  if (!record.method.empty()) {
    fields["method"] = record.method;
    fields["path"] = record.path;
  }
  if (!record.dropped.empty()) fields["dropped"] = dropped_list(record.dropped);
  const std::string hint = hint_for(record.decision, record.host, record.port, record.protocol);
  if (!hint.empty()) fields["hint"] = hint;
  write("egress", std::move(fields));
}

void Recorder::record(const DnsRecord& record) {
  count(record.decision.verdict);
  ++counters_.dns_questions;
  Json fields = decision_fields(record.decision);
  fields["host"] = record.host;
  fields["type"] = record.type;
  fields["protocol"] = "dns";
  if (record.decision.allowed()) {
    Json addresses = Json::array();
    for (const auto& address : record.addresses) addresses.push_back(address.to_text());
    fields["addresses"] = std::move(addresses);
  }
  if (!record.dropped.empty()) fields["dropped"] = dropped_list(record.dropped);
  const std::string hint = hint_for(record.decision, record.host, 0, "");
  if (!hint.empty()) fields["hint"] = hint;
  write("dns", std::move(fields));
}

}  // namespace cofferdam::egressproxy
