// U-labels to A-labels, for the texts that people write: policy files and the command line. Pure.
//
// What comes over the wire is never converted: there a name that is not ASCII is malformed and a
// label "xn--…" is opaque bytes. So a rule and a client can only meet in the A-label.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::policy {

// Each label with a byte above 127 becomes its A-label by the registration procedure of IDNA2008
// (RFC 5891 section 4: strict, nothing is mapped; so full-width forms, circled digits and
// ideographic full stops are errors, not other spellings of something). ASCII upper case is folded
// first. Labels that are ASCII already are left as they are. Errors: not UTF-8, not a U-label.
Result<std::string> to_a_labels(std::string_view text);

}  // namespace cofferdam::policy
