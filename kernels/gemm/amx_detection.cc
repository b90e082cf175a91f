#include "kernels/gemm/amx_tiles.h"
#include "kernels/vector_dispatch.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// A file of its own: tests run the tiles on machines where this file reports that there are none.
namespace kaon::kernels {

#if defined(__x86_64__) && defined(__linux__)

namespace {

// CPUID leaf 7: bits of EDX, and of EAX of its subleaf 1.
bool HasInstructions() {
  constexpr unsigned kAmxBFloat16 = 1u << 22;
  constexpr unsigned kAmxTile = 1u << 24;
  constexpr unsigned kAvx512BFloat16 = 1u << 5;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBFloat16) == 0 || (d & kAmxTile) == 0) return false;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a & kAvx512BFloat16) != 0 && WidestInstructionSet() == InstructionSet::kAvx512;
}

bool AskForTiles() {
  if (!HasInstructions()) return false;
  // Value from the kernel's asm/prctl.h; older systems' headers lack it.
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileState = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileState) == 0;
}

}  // namespace

bool HasAmx() {
  static const bool has_amx = AskForTiles();
  return has_amx;
}

#else

bool HasAmx() { return false; }

#endif

}  // namespace kaon::kernels
