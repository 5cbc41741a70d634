// Diagnostics: prose for people, on stderr, by spdlog. Never parsed by anything.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace cofferdam::log {

// Sets the process's default logger: stderr, "cofferdam-fsproxy: warning: …". The level comes from
// COFFERDAM_LOG (trace|debug|info|warning|error|off), "warning" without it.
void set_up_diagnostics(std::string_view program);

}  // namespace cofferdam::log
