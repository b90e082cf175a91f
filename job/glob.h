// Shell patterns on parameter names, as fnmatch(3) without FNM_PATHNAME has them, in time bounded
// by the product of both lengths: names and patterns come from requests. Pure function; any thread.
#ifndef KAON_JOB_GLOB_H_
#define KAON_JOB_GLOB_H_

#include "absl/strings/string_view.h"

namespace kaon::job {

// Whether `pattern` matches all of `name`: * is any characters, dots too; ? is one; [a-z] and
// [!a-z] are one of a set; a backslash takes the next character as it is. A [ without its ] is
// itself.
bool GlobMatches(absl::string_view pattern, absl::string_view name);

}  // namespace kaon::job

#endif  // KAON_JOB_GLOB_H_
