// Returns a directory of this process, for fuzz targets of code that opens files by path. It is
// below the test's own directory; the first call creates it. One thread.
#ifndef KAON_TESTS_FUZZ_SCRATCH_DIRECTORY_H_
#define KAON_TESTS_FUZZ_SCRATCH_DIRECTORY_H_

#include <glog/logging.h>
#include <stdlib.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace kaon {

inline const std::string& ScratchDirectory() {
  static const std::string directory = [] {
    const char* parent = getenv("TEST_TMPDIR");
    std::string path = absl::StrCat(parent != nullptr ? parent : "/tmp", "/kaon-fuzz.XXXXXX");
    CHECK(mkdtemp(path.data()) != nullptr) << path;
    return path;
  }();
  return directory;
}

}  // namespace kaon

#endif  // KAON_TESTS_FUZZ_SCRATCH_DIRECTORY_H_
