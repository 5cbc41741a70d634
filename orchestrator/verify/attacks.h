// The attacks of `cofferdam verify`, each with the legitimate counterpart that must work. A table.
#pragma once

#include <span>

namespace cofferdam::orchestrator::verify {

// Words of cofferdam-probe, separated by single spaces; {ws}, {home}, {out}, {state}, {port},
// {processes} are filled in. A control may be that of several attacks.
struct Attack {
  const char* area;  // files | processes | network | kernel | secrets | lifecycle
  const char* name;
  const char* boundary;  // what is expected to stop it
  const char* attempt;
  const char* control;
  bool control_writes = false;  // to the workspace: not where that is read only
};

std::span<const Attack> attacks();

}  // namespace cofferdam::orchestrator::verify
