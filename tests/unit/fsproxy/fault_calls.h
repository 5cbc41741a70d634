// Kills the process at a chosen step: every system call that changes a file system is one.
//
// fault_calls.cc defines the C library's functions anew for the test program that links it, also
// for SQLite, so that nothing has to be built into the service.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cofferdam::fault {

// The process dies before the step with this number, counted from 1 on from now.
void die_at(std::int64_t step);
// Counts on without dying; how many steps there were since die_at().
std::int64_t steps();
void disarm();

// The files that were made durable since die_at().
const std::vector<std::string>& synced();

}  // namespace cofferdam::fault
