// cofferdam-probe, the hostile program of `cofferdam verify` and of the escape tests: static, so
// that it runs in any image on any engine.
//
// `probe NAME [ARG…]` makes one attempt and ends with kEscaped (it got what it must not),
// kBlocked (it did not, the line says how it was told) or kUnusable (it could not try).
// A control ends with kEscaped when the legitimate counterpart works.
#pragma once

#include <string>
#include <vector>

namespace probe {

inline constexpr int kEscaped = 0;
inline constexpr int kBlocked = 10;
inline constexpr int kUnusable = 20;

using Arguments = std::vector<std::string>;

struct Attempt {
  const char* name;
  int (*run)(const Arguments& arguments);
};

int escaped(const std::string& detail);
int blocked(const std::string& detail);
int unusable(const std::string& detail);
// blocked() with the text of errno.
int blocked_by_errno(const std::string& call);

// Lists end with a null name.
extern const Attempt kFileAttempts[];
extern const Attempt kProcessAttempts[];
extern const Attempt kNetworkAttempts[];
extern const Attempt kKernelAttempts[];
extern const Attempt kLifecycleAttempts[];

// `probe battery FILE`: every attempt of the file, one a line, fields separated by tabs: a name,
// then the attempt and its arguments. Each runs in a process of its own, for 30 s at most. Prints,
// for each, "@@ <name>", what it said, and "@= <exit status> <begin> <end>" (microseconds since
// 1970).
int run_battery(const char* self, const char* file);

}  // namespace probe
