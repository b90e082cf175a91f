// A directory that is removed with this object. Owned by one test.
#ifndef KAON_TESTS_TESTING_SCRATCH_FOLDER_H_
#define KAON_TESTS_TESTING_SCRATCH_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kaon::testing {

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent = ::testing::TempDir())
      : path_(parent + "/kaon-XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr) << path_;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Returns the path of a file in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_SCRATCH_FOLDER_H_
