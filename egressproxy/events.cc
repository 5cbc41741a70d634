#include "egressproxy/events.h"

#include <algorithm>
#include <span>

#include "common/log/diagnostics.h"
#include "egressproxy/connections.h"
#include "egressproxy/refusal.h"

namespace cofferdam::egressproxy {
namespace {

// Of an answer with hundreds of refused addresses: a name server must not fill the record.
constexpr std::size_t kMaxDroppedTold = policy::EgressPolicy::kMaxAddresses;

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

void Recorder::count(const policy::Decision& decision, std::string_view protocol) {
  const policy::Verdict verdict = decision.verdict;
  if (verdict == policy::Verdict::kAllow) ++counters_.allowed;
  if (verdict == policy::Verdict::kDeny) ++counters_.denied;
  if (verdict == policy::Verdict::kError) ++counters_.failed;
  const auto* const place = std::find(kProtocols.begin(), kProtocols.end(), protocol);
  const auto column = place == kProtocols.end() ? 0 : place - kProtocols.begin();
  const auto row = static_cast<std::size_t>(decision.reason);
  if (row >= counts_.size()) counts_.resize(row + 1);
  ++counts_[row][static_cast<std::size_t>(verdict)][static_cast<std::size_t>(column)];
}

void Recorder::for_each_count(
    const std::function<void(policy::Verdict, policy::Reason, std::string_view, std::uint64_t)>&
        visit) const {
  for (std::size_t verdict = 0; verdict < kVerdicts; ++verdict) {
    for (std::size_t reason = 0; reason < counts_.size(); ++reason) {
      for (std::size_t protocol = 0; protocol < kProtocols.size(); ++protocol) {
        const std::uint64_t count = counts_[reason][verdict][protocol];
        if (count == 0) continue;
        visit(static_cast<policy::Verdict>(verdict), static_cast<policy::Reason>(reason),
              kProtocols[protocol], count);
      }
    }
  }
}

void Recorder::write_per_turn(asio::io_context& context) {
  if (events_ == nullptr) return;
  context_ = &context;
  events_->set_batching(true);
}

void Recorder::complain(const Status& status) {
  if (status.ok()) complained_ = false;
  if (status.ok() || complained_) return;
  complained_ = true;
  spdlog::error("{}; new connections are refused until events can be written again",
                status.error().message());
}

void Recorder::write(std::string_view event, bool at_once) {
  complain(events_->write_line(event, line_));
  if (at_once && context_ != nullptr) {
    complain(events_->flush());
  } else {
    write_later();
  }
}

void Recorder::note(std::string_view event, const Json& fields) {
  if (events_ == nullptr) return;
  complain(events_->write(event, fields));
  write_later();
}

void Recorder::write_later() {
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
  line_.add_flag("retryable", !decision.allowed() && policy::is_retryable(decision.reason));
  if (decision.monitored()) line_.add_flag("monitor", true);
}

void Recorder::add_dropped(const std::vector<policy::DroppedAddress>& dropped) {
  if (dropped.empty()) return;
  std::string list = "[";
  const std::size_t told = std::min(dropped.size(), kMaxDroppedTold);
  for (const auto& one : std::span(dropped).first(told)) {
    log::EventLine entry;
    entry.add("address", one.address.to_text());
    entry.add("reason", policy::to_text(one.decision.reason));
    list += list.size() > 1 ? ",{" : "{";
    list += entry.stable();
    list += '}';
  }
  line_.add_json("dropped", list + "]");
  if (dropped.size() > told) line_.add("dropped_more", std::uint64_t{dropped.size() - told});
}

void Recorder::add_hint(const policy::Decision& decision, std::string_view host, std::uint16_t port,
                        std::string_view protocol) {
  const std::string hint = hint_for(decision, host, port, protocol);
  if (!hint.empty()) line_.add("hint", hint);
}

void Recorder::record(const EgressRecord& record) {
  count(record.decision, record.protocol);
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
  if (record.encrypted_hello) line_.add_json("encrypted_hello", "true");
  add_dropped(record.dropped);
  add_hint(record.decision, record.host, record.port, record.protocol);
  line_.add_sum("bytes_up", record.bytes_up);
  line_.add_sum("bytes_down", record.bytes_down);
  const auto lasted = std::chrono::duration_cast<milliseconds>(Clock::now() - record.since);
  line_.add_measure("duration_ms", static_cast<std::uint64_t>(lasted.count()));
  write("egress", !record.decision.allowed() || !record.method.empty());
}

void Recorder::record(const DnsRecord& record) {
  count(record.decision, "dns");
  ++counters_.dns_questions;
  if (events_ == nullptr) return;
  add_decision(record.decision);
  line_.add("host", record.host);
  line_.add("type", record.type);
  line_.add("protocol", "dns");
  if (record.decision.allowed()) line_.add_json("addresses", list_of(record.addresses));
  if (!record.aliases.empty()) {
    std::string list = "[";
    for (const std::string& alias : record.aliases) {
      if (list.size() > 1) list += ',';
      log::append_json_string(list, alias);
    }
    line_.add_json("aliases", list + "]");
  }
  add_dropped(record.dropped);
  add_hint(record.decision, record.host, 0, "");
  write("dns", !record.decision.allowed());
}

}  // namespace cofferdam::egressproxy
