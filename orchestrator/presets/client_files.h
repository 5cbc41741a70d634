// Where the configuration of the user's own clients lies, and how a client is asked: never anything
// of the workspace, whose author must not choose what is allowed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

// A variable of the caller's own environment; nothing where it is not set or empty.
std::optional<std::string> own_variable(const char* name);

// The user's directory for configuration: XDG_CONFIG_HOME, else ~/.config.
std::filesystem::path config_home(const PresetQuery& query);

// The file's text; nothing where there is none. A file in the workspace is an error, and so is one
// that cannot be read.
Result<std::optional<std::string>> read_own_file(const std::filesystem::path& file,
                                                 const PresetQuery& query);

// The certificates of the file, without anything else that it holds.
Result<std::string> read_certificates(const std::filesystem::path& file, const PresetQuery& query);

// A program of the user's PATH, its relative entries and whatever lies in the workspace left out;
// empty where there is none.
std::filesystem::path find_client(std::string_view program, const PresetQuery& query);

// What the client prints, started in an empty directory of ours with a cleaned environment and
// `more` ("NAME=value"). `beside` is a file that is put there first, for clients that look upwards.
struct Question {
  std::vector<std::string> argv;  // argv[0] as find_client gave it
  std::vector<std::string> more;
  std::string beside;  // a file's name; its content is "{}"
};
Result<std::string> ask_client(const Question& question, const PresetQuery& query);

// policies/presets/NAME.json; its `set` is put into the result's environment.
Result<Json> preset_data(PresetResult* result);

// A copy of the certificates inside, and the preset's variables that name it.
Status carry_certificates(const Json& data, const std::string& certificates, PresetResult* result);

// A hint for a registry that the repository names and that is not among the rules.
void hint_of_repository(const RegistryUrl& url, std::string_view file, PresetResult* result);

}  // namespace cofferdam::orchestrator
