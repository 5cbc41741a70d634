// The one function through which everything that came from a sandbox is printed.
#pragma once

#include <string>
#include <string_view>

namespace cofferdam {

// `text` made safe for a terminal: C0 and C1 controls, DEL, bidirectional and other invisible
// formatting characters and invalid UTF-8 become \xNN or \u{NNNN}; a backslash becomes "\\".
// Newline and tab are escaped too unless `keep_lines`.
std::string escape_for_terminal(std::string_view text, bool keep_lines = false);

// `text` itself when it is valid UTF-8 (RFC 3629, no surrogates), else nothing valid is assumed.
bool is_valid_utf8(std::string_view text);

// Bytes for JSON: valid UTF-8 as it is; every byte of an invalid sequence as U+FFFD.
std::string to_json_text(std::string_view bytes);

}  // namespace cofferdam
