#include "egressproxy/budgets.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Reason;
using policy::Verdict;

constexpr std::chrono::seconds kSecond{1};
constexpr std::chrono::minutes kMinute{1};

// A new limit, less what was used under the old one.
void set_limit(Account& account, Direction direction, std::optional<std::uint64_t> limit) {
  const auto i = static_cast<std::size_t>(direction);
  const std::uint64_t used = account.used(direction);
  account.limit[i] = std::max(limit.value_or(Account::kUnlimited), used);
  account.left[i] = account.limit[i] - used;
}

void set_budget(Account& account, const policy::Budget& budget) {
  account.budget = budget;
  set_limit(account, Direction::kUp, budget.bytes_up);
  set_limit(account, Direction::kDown, budget.bytes_down);
}

void forget_before(Account& account, Account::Time now) {
  while (!account.openings.empty() && now - account.openings.front() >= kSecond) {
    account.openings.pop_front();
  }
  while (!account.names.empty() && now - account.names.front().first >= kMinute) {
    account.names_seen.erase(account.names.front().second);
    account.names.pop_front();
  }
}

// Which budget keeps this account from one more connection; kAllowed: none does.
Reason why_full(Account& account, Account::Time now) {
  if (account.left[0] == 0 || account.left[1] == 0) return Reason::kQuotaExceeded;
  const policy::Budget& budget = account.budget;
  if (budget.connections && account.live >= *budget.connections) {
    return Reason::kTooManyConnections;
  }
  if (!budget.connections_per_second) return Reason::kAllowed;
  forget_before(account, now);
  return account.openings.size() < *budget.connections_per_second ? Reason::kAllowed
                                                                  : Reason::kRateLimited;
}

bool has_name_left(Account& account, const std::string& name, Account::Time now) {
  if (!account.budget.names_per_minute) return true;
  forget_before(account, now);
  return account.names_seen.contains(name) ||
         account.names.size() < *account.budget.names_per_minute;
}

void count_name(Account& account, const std::string& name, Account::Time now) {
  if (!account.budget.names_per_minute || !account.names_seen.insert(name).second) return;
  account.names.emplace_back(now, name);
}

}  // namespace

Slot::Slot(Account& sandbox, Account& rule) : sandbox_(&sandbox), rule_(&rule) {
  ++sandbox.live;
  ++rule.live;
}

Slot::Slot(Slot&& other) noexcept
    : sandbox_(std::exchange(other.sandbox_, nullptr)), rule_(other.rule_) {}

Slot::~Slot() {
  if (sandbox_ == nullptr) return;
  --sandbox_->live;
  --rule_->live;
}

void Slot::move_to(Account& rule) {
  --rule_->live;
  rule_ = &rule;
  ++rule.live;
}

Budgets::Budgets(std::shared_ptr<const policy::EgressPolicy> policy) {
  adopt(std::move(policy));
}

void Budgets::adopt(std::shared_ptr<const policy::EgressPolicy> policy) {
  policy_ = std::move(policy);
  set_budget(sandbox_, policy_->budget());
  std::erase_if(retired_, [](const auto& account) { return account->live == 0; });
  for (auto it = entries_.begin(); it != entries_.end();) {
    const policy::EgressRule* rule = policy_->find_rule(it->first);
    if (rule != nullptr && to_text(*rule) == it->second.text) {
      set_budget(*it->second.account, rule->budget);
      ++it;
      continue;
    }
    if (rule == nullptr && it->second.text.empty()) {  // a mode's
      ++it;
      continue;
    }
    // Live connections and flights still point at it.
    retired_.push_back(std::move(it->second.account));
    it = entries_.erase(it);
  }
}

Budgets::Entry& Budgets::entry(std::string_view rule) {
  if (const auto found = entries_.find(rule); found != entries_.end()) return found->second;
  Entry made;
  made.account = std::make_unique<Account>();
  made.account->rule = rule;
  if (const policy::EgressRule* known = policy_->find_rule(rule)) {
    made.text = to_text(*known);
    made.counts_names = known->pattern.kind() != policy::HostPattern::Kind::kExact;
    set_budget(*made.account, known->budget);
  }
  return entries_.emplace(std::string(rule), std::move(made)).first->second;
}

Account& Budgets::account(std::string_view rule) {
  return *entry(rule).account;
}

Admission Budgets::admit(const Decision& allowed, Time now) {
  Account& rule = account(allowed.rule);
  Admission admission;
  admission.decision = allowed;
  for (Account* account : {&rule, &sandbox_}) {
    const Reason reason = why_full(*account, now);
    if (reason == Reason::kAllowed) continue;
    admission.decision = {Verdict::kDeny, reason, allowed.rule};
    return admission;
  }
  for (Account* account : {&rule, &sandbox_}) {
    ++account->opened;
    if (account->budget.connections_per_second) account->openings.push_back(now);
  }
  admission.slot.emplace(sandbox_, rule);
  return admission;
}

Decision Budgets::readmit(const Decision& allowed, const Account& now_charged, Time now) {
  Account& rule = account(allowed.rule);
  if (&rule == &now_charged) return allowed;
  const Reason reason = why_full(rule, now);
  if (reason != Reason::kAllowed) return {Verdict::kDeny, reason, allowed.rule};
  ++rule.opened;
  if (rule.budget.connections_per_second) rule.openings.push_back(now);
  return allowed;
}

Decision Budgets::admit_name(const policy::HostName& name, const Decision& allowed, Time now) {
  Entry& of_rule = entry(allowed.rule);
  if (!of_rule.counts_names) return allowed;
  for (Account* account : {of_rule.account.get(), &sandbox_}) {
    if (!has_name_left(*account, name.text(), now)) {
      return {Verdict::kDeny, Reason::kRateLimited, allowed.rule};
    }
  }
  for (Account* account : {of_rule.account.get(), &sandbox_})
    count_name(*account, name.text(), now);
  return allowed;
}

std::vector<const Account*> Budgets::accounts() const {
  std::vector<const Account*> all;
  for (const auto& [id, entry] : entries_) all.push_back(entry.account.get());
  return all;
}

}  // namespace cofferdam::egressproxy
