#include "orchestrator/verify/verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "common/base/text_time.h"
#include "common/os/pipes.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/verify/attacks.h"
#include "orchestrator/verify/leftovers.h"
#include "orchestrator/verify/process_marks.h"
#include "orchestrator/verify/range.h"

namespace cofferdam::orchestrator::verify {
namespace {

constexpr int kWorks = 0;
constexpr int kBlocked = 10;
constexpr std::chrono::minutes kPatience{10};
constexpr std::chrono::seconds kEndPatience{60};
constexpr const char* kGivenToken = "COFFERDAM_VERIFY_API_TOKEN";
constexpr const char* kGivenValue = "given-value-that-must-not-be-printed";
// A limit above this is not tried out: the host would have to carry it.
constexpr std::uint64_t kMostProcesses = 20000;

// What the probe said of one attempt.
struct Outcome {
  int status = -1;
  std::int64_t begin_us = 0;
  std::int64_t end_us = 0;
  std::string said;
};

std::map<std::string, Outcome> parse_outcomes(const std::string& text) {
  std::map<std::string, Outcome> outcomes;
  std::istringstream lines(text);
  std::string name;
  Outcome outcome;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("@@ ")) {
      name = line.substr(3);
      outcome = Outcome();
    } else if (line.starts_with("@= ") && !name.empty()) {
      std::istringstream numbers(line.substr(3));
      numbers >> outcome.status >> outcome.begin_us >> outcome.end_us;
      outcomes[name] = outcome;
      name.clear();
    } else {
      outcome.said += (outcome.said.empty() ? "" : " ") + line;
    }
  }
  return outcomes;
}

// What of ours saw an attempt: the first decision against it in its time.
std::string event_in(const std::vector<Json>& events, const Outcome& outcome) {
  for (const Json& event : events) {
    if (event_text(event, "verdict") != "deny") continue;
    const auto time = parse_rfc3339(event_text(event, "time"));
    if (!time) continue;
    const auto at =
        std::chrono::duration_cast<std::chrono::microseconds>(time->time_since_epoch()).count();
    if (at < outcome.begin_us || at > outcome.end_us) continue;
    std::string seen = event_text(event, "service") + " " + event_text(event, "reason");
    if (const std::string call = event_text(event, "syscall"); !call.empty()) seen += " " + call;
    return seen;
  }
  return "kernel";
}

class Verification final {
 public:
  Verification(const Query& query, const Range& range) : query_(query), range_(range) {}

  Result<Report> run() {
    TRY(look_at_the_plan());
    TRY(start_server());
    TRY(run_battery());
    TRY(outlive_the_time_limit());
    return std::move(report_);
  }

 private:
  std::vector<std::string> flags(std::initializer_list<std::string> more) const {
    std::vector<std::string> all = query_.run_flags;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Status look_at_the_plan() {
    TRY_ASSIGN(const RunDone done, range_.run(flags({"--dry-run"}), {"true"}, kEndPatience));
    const auto plan = parse_json(done.out);
    if (done.status != 0 || !plan.ok()) return Error(done.err.empty() ? "no plan" : done.err);
    try {
      writable_ = plan->at("mounts").at(0).at("writable").get<bool>();
      if (const Json& pids = plan->at("limits").at("pids"); !pids.is_null()) {
        pids_ = pids.get<std::uint64_t>();
      }
    } catch (const Json::exception& fault) {
      return Error(std::string("the plan: ") + fault.what());
    }
    return {};
  }

  // On the host's loopback: what a sandbox must not reach.
  Status start_server() {
    TRY_ASSIGN(const auto probe, find_own_program("cofferdam-probe"));
    TRY_ASSIGN(os::Pipe input, os::make_pipe());
    TRY_ASSIGN(os::Pipe output, os::make_pipe());
    os::SpawnOptions options;
    options.argv = {probe.string(), "serve-canary"};
    options.env = std::vector<std::string>{};
    options.fds = {{input.read.get(), 0}, {output.write.get(), 1}};
    options.die_with_parent = true;
    TRY_ASSIGN(server_, os::ChildProcess::spawn(options));
    server_input_ = std::move(input.write);
    output.write.reset();
    TRY_ASSIGN(port_, os::read_fd(output.read.get(), 64));
    while (!port_.empty() && port_.back() == '\n') port_.pop_back();
    if (port_.empty()) return Error("the server of the host did not start");
    return {};
  }

  std::string filled(std::string text) const {
    const std::pair<const char*, std::string> names[] = {
        {"{ws}", range_.workspace().string()},
        {"{home}", range_.home().string()},
        {"{out}", range_.outside().string()},
        {"{state}", range_.state().string()},
        {"{port}", port_},
        {"{processes}", std::to_string(pids_.value_or(0) + 64)}};
    for (const auto& [name, value] : names) {
      for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
        text.replace(at, std::string(name).size(), value);
        at += value.size();
      }
    }
    std::replace(text.begin(), text.end(), ' ', '\t');
    return text;
  }

  bool is_tried(const Attack& attack) const {
    const bool needs_limit =
        std::string_view(attack.attempt).find("{processes}") != std::string_view::npos;
    return !needs_limit || (pids_ && *pids_ <= kMostProcesses);
  }

  Status run_battery() {
    std::string text;
    std::size_t number = 0;
    for (const Attack& attack : attacks()) {
      const std::string key = std::to_string(number++);
      if (!is_tried(attack)) continue;
      if (writable_ || !attack.control_writes)
        text += "c" + key + "\t" + filled(attack.control) + "\n";
      text += "a" + key + "\t" + filled(attack.attempt) + "\n";
    }
    text += std::string("say\tsay\t") + kGivenToken + "\n";
    text += std::string("given\tenviron\t") + kGivenToken + "\n";
    const std::string mark = "cofferdam-verify-daemon-" + port_;
    text += "daemon\tdaemon\t" + mark + "\n";
    TRY(os::write_file_atomic(range_.workspace() / "battery", text));
    const std::string given = std::string(kGivenToken) + "=" + kGivenValue;
    const std::string probe = (range_.workspace() / "probe").string();
    TRY_ASSIGN(
        const RunDone done,
        range_.run(flags({"--env", given}),
                   {probe, "battery", (range_.workspace() / "battery").string()}, kPatience));
    const auto outcomes = parse_outcomes(done.out);
    if (!outcomes.contains("daemon")) {
      return Error("the attacks did not run to their end (status " + std::to_string(done.status) +
                   "): " + done.err);
    }
    number = 0;
    for (const Attack& attack : attacks()) judge(attack, std::to_string(number++), outcomes, done);
    judge_host(outcomes, done, mark);
    return {};
  }

  void judge(const Attack& attack, const std::string& key,
             const std::map<std::string, Outcome>& outcomes, const RunDone& done) {
    Finding finding{attack.area, attack.name, attack.boundary, Verdict::kNotTried, "", "", ""};
    const auto attempt = outcomes.find("a" + key);
    const auto control = outcomes.find("c" + key);
    if (attempt == outcomes.end()) {
      finding.happened = "not tried: the limit is too high, or there is none";
    } else {
      finding.happened = attempt->second.said;
      finding.event = event_in(done.events, attempt->second);
      finding.verdict = attempt->second.status == kBlocked ? Verdict::kHeld : Verdict::kBroken;
      if (finding.verdict == Verdict::kHeld && control != outcomes.end() &&
          control->second.status != kWorks) {
        finding.verdict = Verdict::kControlFailed;
        finding.control = std::string(attack.control) + ": " + control->second.said;
      }
    }
    report_.findings.push_back(std::move(finding));
  }

  void add(const char* area, const char* attack, const char* boundary, bool held, bool control,
           const std::string& happened) {
    report_.findings.push_back({area, attack, boundary,
                                !held     ? Verdict::kBroken
                                : control ? Verdict::kHeld
                                          : Verdict::kControlFailed,
                                happened, "kernel", control ? "" : "the counterpart failed"});
  }

  // What only the host can see.
  void judge_host(const std::map<std::string, Outcome>& outcomes, const RunDone& done,
                  const std::string& mark) {
    const bool printed = done.out.find(kGivenValue) != std::string::npos ||
                         done.err.find(kGivenValue) != std::string::npos;
    const auto given = outcomes.find("given");
    add("secrets", "print a given secret", "redaction", !printed,
        given != outcomes.end() && given->second.status == kWorks,
        printed ? "it came out" : "replaced in the output");
    const auto pids = find_marked(mark);
    add("lifecycle", "outlive the command as a daemon", "pid namespace", pids.empty(),
        outcomes.at("daemon").status == kBlocked,
        pids.empty() ? "gone with the command" : "process " + std::to_string(pids.front()));
    const bool untouched = range_.outside_is_untouched();
    add("files", "change anything outside, all attacks together", "mounts", untouched, true,
        untouched ? "unchanged" : "a file outside was changed");
  }

  Status outlive_the_time_limit() {
    const std::string mark = "cofferdam-verify-late-" + port_;
    const std::string ws = range_.workspace().string();
    TRY(os::write_file_atomic(range_.workspace() / "late",
                              "daemon\tdaemon\t" + mark + "\nwait\twait\n"));
    TRY_ASSIGN(const RunDone done,
               range_.run(flags({"--timeout", "1s"}), {ws + "/probe", "battery", ws + "/late"},
                          kEndPatience));
    const auto pids = find_marked(mark);
    const auto outcomes = parse_outcomes(done.out);
    constexpr int kTimedOut = 124;
    add("lifecycle", "outlive the time limit", "time limit, pid namespace",
        done.status == kTimedOut && pids.empty(), outcomes.contains("daemon"),
        pids.empty() ? "status " + std::to_string(done.status) + ", nothing left"
                     : "process " + std::to_string(pids.front()) + " is left");
    return {};
  }

  const Query& query_;
  const Range& range_;
  bool writable_ = true;
  std::optional<std::uint64_t> pids_;
  os::ChildProcess server_;
  os::UniqueFd server_input_;
  std::string port_;
  Report report_;
};

}  // namespace

bool Report::held() const {
  return count(Verdict::kBroken) == 0 && count(Verdict::kControlFailed) == 0;
}

std::size_t Report::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::count_if(
      findings.begin(), findings.end(), [&](const Finding& f) { return f.verdict == verdict; }));
}

Result<Report> verify(const Query& query) {
  TRY_ASSIGN(const Range range, Range::create());
  TRY_ASSIGN(const RangeMark mark, RangeMark::create(query.state, range.root()));
  return Verification(query, range).run();
}

const char* to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHeld:
      return "held";
    case Verdict::kBroken:
      return "BROKEN";
    case Verdict::kControlFailed:
      return "CONTROL FAILED";
    case Verdict::kNotTried:
      break;
  }
  return "not tried";
}

Json to_json(const Report& report) {
  Json list = Json::array();
  for (const Finding& finding : report.findings) {
    list.push_back({{"area", finding.area},
                    {"attack", finding.attack},
                    {"boundary", finding.boundary},
                    {"verdict", to_text(finding.verdict)},
                    {"happened", finding.happened},
                    {"event", finding.event},
                    {"control", finding.control}});
  }
  return {{"held", report.held()},
          {"attacks", report.findings.size()},
          {"broken", report.count(Verdict::kBroken)},
          {"controls_failed", report.count(Verdict::kControlFailed)},
          {"not_tried", report.count(Verdict::kNotTried)},
          {"findings", list}};
}

}  // namespace cofferdam::orchestrator::verify
