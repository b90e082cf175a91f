// Translates shell patterns on parameter names to regular expressions. Patterns mean what
// fnmatch(3) without FNM_PATHNAME makes of them. Names and patterns come from requests, and RE2
// matches in linear time. Pure function; any thread.
#ifndef KAON_JOB_GLOB_H_
#define KAON_JOB_GLOB_H_

#include <string>

#include "absl/strings/string_view.h"

namespace kaon::job {

// Returns an RE2 that finds something in exactly the ASCII names that `pattern` matches as a whole.
// `*` matches any characters, also dots; `?` matches one character; `[a-z]` and `[!a-z]` match one
// of a set. A backslash quotes the next character. A `[` without its `]` matches itself.
std::string GlobToRegex(absl::string_view pattern);

}  // namespace kaon::job

#endif  // KAON_JOB_GLOB_H_
