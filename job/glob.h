// Shell patterns on parameter names, as fnmatch(3) without FNM_PATHNAME has them, written as
// regular expressions: names and patterns come from requests, and RE2 matches in linear time. Pure
// function; any thread.
#ifndef KAON_JOB_GLOB_H_
#define KAON_JOB_GLOB_H_

#include <string>

#include "absl/strings/string_view.h"

namespace kaon::job {

// An RE2 that finds something in exactly the ASCII names that `pattern` matches as a whole: * is
// any characters, dots too; ? is one; [a-z] and [!a-z] are one of a set; a backslash takes the next
// character as it is. A [ without its ] is itself.
std::string GlobToRegex(absl::string_view pattern);

}  // namespace kaon::job

#endif  // KAON_JOB_GLOB_H_
