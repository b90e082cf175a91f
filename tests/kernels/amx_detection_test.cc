#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "kernels/amx_tiles.h"

namespace kaon::kernels {
namespace {

// Whether every CPU that the system lists says that it has `flag`.
bool SystemLists(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == flag) return true;
    }
    return false;
  }
  return false;
}

// The system's own list is another witness than CPUID.
TEST(AmxDetectionTest, SaysWhatTheSystemLists) {
  const bool listed =
      SystemLists("amx_tile") && SystemLists("amx_bf16") && SystemLists("avx512_bf16");
  EXPECT_EQ(HasAmx(), listed);
}

}  // namespace
}  // namespace kaon::kernels
