// Budgets: the accounts of the sandbox and of each rule that was used, and who may still have a
// connection or a name. One thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/policy/egress_policy.h"
#include "egressproxy/meter.h"

namespace cofferdam::egressproxy {

// A place among the connections that may be there at once; left by the destructor.
class Slot final {
 public:
  Slot(Account& sandbox, Account& rule);
  ~Slot();
  Slot(Slot&& other) noexcept;
  Slot& operator=(Slot&&) = delete;
  Slot(const Slot&) = delete;

  Account& sandbox() const { return *sandbox_; }
  Account& rule() const { return *rule_; }
  void move_to(Account& rule);

 private:
  Account* sandbox_;  // null: moved from
  Account* rule_;
};

struct Admission {
  policy::Decision decision;  // allows, or which budget is spent
  std::optional<Slot> slot;   // set when it allows
};

class Budgets final {
 public:
  using Time = Account::Time;

  explicit Budgets(std::shared_ptr<const policy::EgressPolicy> policy);

  // A rule that is still there (the same id and text) goes on with what it has used.
  void adopt(std::shared_ptr<const policy::EgressPolicy> policy);

  // May `allowed`'s rule have one more connection? A place and a turn are taken when it may.
  Admission admit(const policy::Decision& allowed, Time now);

  // May a connection that was admitted become one of `allowed`'s rule, which may be another? A turn
  // of that rule is taken when it may; the place is moved by Connection::charge_to.
  policy::Decision readmit(const policy::Decision& allowed, const Account& now_charged, Time now);

  // May this name be asked for upstream? Counts it where a wildcard or an open mode let it through:
  // a name that a rule spells out carries nothing out.
  policy::Decision admit_name(const policy::HostName& name, const policy::Decision& allowed,
                              Time now);

  // Never fails: an id that no rule has gets an account without limits.
  Account& account(std::string_view rule);
  Account& sandbox() { return sandbox_; }
  const Account& sandbox() const { return sandbox_; }
  // Of rules that were used, by id.
  std::vector<const Account*> accounts() const;

 private:
  struct Entry {
    std::string text;  // of the rule, canonical
    bool counts_names = true;
    std::unique_ptr<Account> account;
  };
  Entry& entry(std::string_view rule);

  std::shared_ptr<const policy::EgressPolicy> policy_;
  Account sandbox_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::unique_ptr<Account>> retired_;  // of rules that are gone, while in use
};

}  // namespace cofferdam::egressproxy
