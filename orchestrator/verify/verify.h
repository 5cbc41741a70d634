// `cofferdam verify`: runs every attack with its control in sandboxes made from the user's own
// manifest, and judges what happened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"

namespace cofferdam::orchestrator::verify {

struct Query {
  std::vector<std::string> run_flags;  // --manifest F, --engine E, --image I
  std::filesystem::path state;         // …/cofferdam: where a killed one is found again
};

enum class Verdict : std::uint8_t { kHeld, kBroken, kControlFailed, kNotTried };

struct Finding {
  std::string area;
  std::string attack;
  std::string boundary;
  Verdict verdict = Verdict::kNotTried;
  std::string happened;  // may hold what came from inside: print it escaped
  std::string
      event;  // "fsproxy hidden", "engine syscall mount"; "kernel" where nobody of ours saw it
  std::string control;  // what the control said where it failed
};

struct Report {
  std::vector<Finding> findings;
  // Nothing broken, no control failed.
  bool held() const;
  std::size_t count(Verdict verdict) const;
};

// Errors are those of the sandbox: it could not be started, or did not run to its end.
Result<Report> verify(const Query& query);

const char* to_text(Verdict verdict);
Json to_json(const Report& report);

}  // namespace cofferdam::orchestrator::verify
