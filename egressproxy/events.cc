#include "egressproxy/events.h"

#include "common/log/diagnostics.h"
#include "egressproxy/connections.h"
#include "egressproxy/refusal.h"

namespace cofferdam::egressproxy {
namespace {

std::string list_of(const std::vector<policy::IpAddress>& addresses) {
  std::string list = "[";
  for (const auto& address : addresses) {
    if (list.size() > 1) list += ',';
    log::append_json_string(list, address.to_text());
  }
  return list + "]";
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

void Recorder::write_per_turn(asio::io_context& context) {
  if (events_ == nullptr) return;
  context_ = &context;
  events_->set_batching(true);
}

void Recorder::complain(const Status& status) {
  if (status.ok() || complained_) return;
  complained_ = true;
  spdlog::error("{}; new connections are refused from now on", status.error().message());
}

void Recorder::write(std::string_view event) {
  complain(events_->write_line(event, line_));
  if (context_ == nullptr || flush_due_ || !events_->pending()) return;
  flush_due_ = true;
  asio::post(*context_, [this] {
    flush_due_ = false;
    complain(events_->flush());
  });
}

void Recorder::add_decision(const policy::Decision& decision) {
  line_.clear();
  line_.add("verdict", policy::to_text(decision.verdict));
  line_.add("reason", policy::to_text(decision.reason));
  line_.add("rule", decision.rule);
  line_.add_flag("retryable", policy::is_retryable(decision.reason));
}

void Recorder::add_dropped(const std::vector<policy::DroppedAddress>& dropped) {
  if (dropped.empty()) return;
  std::string list = "[";
  for (const auto& one : dropped) {
    log::EventLine entry;
    entry.add("address", one.address.to_text());
    entry.add("reason", policy::to_text(one.decision.reason));
    list += list.size() > 1 ? ",{" : "{";
    list += entry.stable();
    list += '}';
  }
  line_.add_json("dropped", list + "]");
}

void Recorder::add_hint(const policy::Decision& decision, std::string_view host, std::uint16_t port,
                        std::string_view protocol) {
  const std::string hint = hint_for(decision, host, port, protocol);
  if (!hint.empty()) line_.add("hint", hint);
}

void Recorder::record(const EgressRecord& record) {
  count(record.decision.verdict);
  counters_.bytes_up += record.bytes_up;
  counters_.bytes_down += record.bytes_down;
  if (events_ == nullptr) return;
  add_decision(record.decision);
  line_.add("host", record.host);
  line_.add("port", std::uint64_t{record.port});
  if (record.address) {
    line_.add("address", record.address->to_text());
  } else {
    line_.add_json("address", "null");
  }
  line_.add("protocol", record.protocol);
  line_.add("via", record.via);
  if (!record.method.empty()) {
    line_.add("method", record.method);
    line_.add("path", record.path);
  }
  add_dropped(record.dropped);
  add_hint(record.decision, record.host, record.port, record.protocol);
  line_.add_sum("bytes_up", record.bytes_up);
  line_.add_sum("bytes_down", record.bytes_down);
  const auto lasted = std::chrono::duration_cast<milliseconds>(Clock::now() - record.since);
  line_.add_measure("duration_ms", static_cast<std::uint64_t>(lasted.count()));
  write("egress");
}

void Recorder::record(const DnsRecord& record) {
  count(record.decision.verdict);
  ++counters_.dns_questions;
  if (events_ == nullptr) return;
  add_decision(record.decision);
  line_.add("host", record.host);
  line_.add("type", record.type);
  line_.add("protocol", "dns");
  if (record.decision.allowed()) line_.add_json("addresses", list_of(record.addresses));
  add_dropped(record.dropped);
  add_hint(record.decision, record.host, 0, "");
  write("dns");
}

}  // namespace cofferdam::egressproxy
