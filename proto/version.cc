#include "proto/version.h"

#include "absl/strings/str_cat.h"
#include "proto/version_numbers.h"

namespace kaon::proto {

Version ThisVersion() { return {KAON_VERSION, KAON_COMMIT, KAON_BUILD}; }

std::string VersionText(const std::string& program, const std::string& features) {
  const Version version = ThisVersion();
  return absl::StrCat(program, " ", version.version, " (commit ", version.commit, ", ",
                      version.build, " build)\nfeatures: ", features);
}

}  // namespace kaon::proto
