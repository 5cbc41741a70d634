#include "common/log/diagnostics.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace cofferdam::log {

void set_up_diagnostics(std::string_view program) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(std::string(program), std::move(sink));
  logger->set_pattern("%n: %l: %v");
  const char* wanted = std::getenv("COFFERDAM_LOG");
  logger->set_level(wanted == nullptr ? spdlog::level::warn
                                      : spdlog::level::from_str(std::string(wanted)));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace cofferdam::log
