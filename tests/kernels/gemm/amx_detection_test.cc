#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "kernels/gemm/amx_tiles.h"

namespace kaon::kernels {
namespace {

// Returns true if the system lists `flag` for its first CPU.
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

// The system's own list is evidence that is independent of CPUID. A process may lack the permission
// for a feature in the list.
TEST(AmxDetectionTest, SaysWhatTheSystemListsAndAllows) {
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileState = 18;
  const bool listed =
      SystemLists("amx_tile") && SystemLists("amx_bf16") && SystemLists("avx512_bf16");
  EXPECT_EQ(HasAmx(), listed && syscall(SYS_arch_prctl, kRequestPermission, kTileState) == 0);
}

}  // namespace
}  // namespace kaon::kernels
