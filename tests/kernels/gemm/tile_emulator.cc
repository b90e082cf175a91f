#include "tests/kernels/gemm/tile_emulator.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

#include "kernels/vector_dispatch.h"
#include "tests/kernels/gemm/tile_product.h"

namespace kaon::kernels {
namespace {

constexpr int kTiles = 8;
constexpr int kBytesPerRow = 64;
constexpr int kTileBytes = kRowsOfTile * kBytesPerRow;

struct TileRegisters {
  bool are_set_up = false;
  alignas(64) uint8_t tiles[kTiles][kTileBytes] = {};
};

thread_local TileRegisters registers;

// Places of the CPU's sixteen registers in the signal's context, in the order of their numbers.
constexpr int kGeneralRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};

// A VEX instruction of the map 0F38 in its form of three bytes.
struct Instruction {
  enum Prefix { kNone, k66, kF3, kF2 };

  Prefix prefix = kNone;
  uint8_t opcode = 0;
  int mod = 0;
  int reg = 0;
  int rm = 0;
  // The register that VEX names in addition to `reg` and `rm`.
  int third = 0;
  int length = 0;
  // True if the instruction names a register beyond the eighth; no such tile exists.
  bool names_high_tile = false;
  // Memory operand, unless mod is 3: `address` is the address without the index. `stride` is the
  // index times its scale: the bytes from row to row of a tile.
  int64_t address = 0;
  int64_t stride = 0;
};

int32_t SignedBytes(const uint8_t* at, int bytes) {
  if (bytes == 1) return static_cast<int8_t>(*at);
  int32_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The operand whose bytes from ModRM's on are `at`; they are counted in `to.length`.
void DecodeMemory(const uint8_t* at, uint8_t inverted, const greg_t* cpu, Instruction& to) {
  constexpr int kNoIndex = 4;
  const int high_index = (inverted & 0x40) != 0 ? 0 : 8;
  const int high_base = (inverted & 0x20) != 0 ? 0 : 8;
  const uint8_t* const start = at++;
  int base = to.rm;
  if (to.rm == 4) {
    base = *at & 7;
    const int index = (*at >> 3 & 7) + high_index;
    if (index != kNoIndex) to.stride = cpu[kGeneralRegisters[index]] << (*at >> 6);
    ++at;
  }
  int displacement_bytes = to.mod == 0 ? 0 : to.mod == 1 ? 1 : 4;
  const bool has_no_base = to.mod == 0 && base == 5;
  if (has_no_base) {
    displacement_bytes = 4;
  } else {
    to.address = cpu[kGeneralRegisters[base + high_base]];
  }
  if (displacement_bytes > 0) to.address += SignedBytes(at, displacement_bytes);
  at += displacement_bytes;
  to.length += static_cast<int>(at - start);
  // Without a byte of its own for base and index, "no base" is the next instruction's address.
  if (has_no_base && to.rm == 5) to.address += cpu[REG_RIP] + to.length;
}

// False for bytes that are no such instruction.
bool Decode(const uint8_t* at, const greg_t* cpu, Instruction& to) {
  constexpr uint8_t kVexOfThreeBytes = 0xc4;
  constexpr uint8_t kMap0F38 = 2;
  if (at[0] != kVexOfThreeBytes || (at[1] & 0x1f) != kMap0F38) return false;
  // W and the vector's length are 0 in each of them.
  if ((at[2] & 0x84) != 0) return false;
  to.prefix = static_cast<Instruction::Prefix>(at[2] & 3);
  to.third = ~at[2] >> 3 & 0xf;
  to.opcode = at[3];
  to.mod = at[4] >> 6;
  to.reg = at[4] >> 3 & 7;
  to.rm = at[4] & 7;
  to.names_high_tile = (at[1] & 0x80) == 0 || (to.mod == 3 && (at[1] & 0x20) == 0);
  to.length = 4;
  if (to.mod == 3) {
    ++to.length;
  } else {
    DecodeMemory(at + 4, at[1], cpu, to);
  }
  return true;
}

// The only settings that LDTILECFG accepts here: palette 1 and eight full tiles. The CPU would
// reject some others, too.
struct Settings {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Settings) == 64 && kBytesPerRow == 64 && kRowsOfTile == 16 && kTiles == 8);

bool SetUp(int64_t address) {
  const Settings full;
  if (std::memcmp(reinterpret_cast<const void*>(address), &full, sizeof(full)) != 0) return false;
  registers = TileRegisters{.are_set_up = true};
  return true;
}

void MoveTile(const Instruction& i, bool loads) {
  uint8_t* tile = registers.tiles[i.reg];
  for (int64_t row = 0; row < kRowsOfTile; ++row, tile += kBytesPerRow) {
    auto* const memory = reinterpret_cast<uint8_t*>(i.address + row * i.stride);
    std::memcpy(loads ? tile : memory, loads ? memory : tile, kBytesPerRow);
  }
}

void MultiplyTiles(const Instruction& i) {
  RunVectorized<MultiplyTile>(reinterpret_cast<const uint16_t*>(registers.tiles[i.rm]),
                              reinterpret_cast<const uint16_t*>(registers.tiles[i.third]), true,
                              reinterpret_cast<float*>(registers.tiles[i.reg]));
}

// Returns false if `i` is no tile instruction, or not allowed now.
bool Execute(const Instruction& i) {
  constexpr uint8_t kSettings = 0x49;
  constexpr uint8_t kMove = 0x4b;
  constexpr uint8_t kMultiplyBFloat16 = 0x5c;
  constexpr int kHasIndex = 4;
  const bool in_registers = i.mod == 3;
  if (i.opcode == kSettings && i.prefix == Instruction::kNone) {
    if (i.reg != 0 || i.third != 0) return false;
    if (!in_registers) return SetUp(i.address + i.stride);
    if (i.rm != 0) return false;
    registers = TileRegisters{};
    return true;
  }
  if (!registers.are_set_up || i.names_high_tile) return false;
  if (i.opcode == kSettings && i.prefix == Instruction::kF2 && in_registers && i.rm == 0 &&
      i.third == 0) {
    std::memset(registers.tiles[i.reg], 0, kTileBytes);
    return true;
  }
  if (i.opcode == kMove && !in_registers && i.rm == kHasIndex && i.third == 0 &&
      i.prefix != Instruction::kNone) {
    MoveTile(i, i.prefix != Instruction::kF3);
    return true;
  }
  // Their three must differ.
  if (i.opcode == kMultiplyBFloat16 && i.prefix == Instruction::kF3 && in_registers &&
      i.third < kTiles && i.reg != i.rm && i.reg != i.third && i.rm != i.third) {
    MultiplyTiles(i);
    return true;
  }
  return false;
}

// Restores the default action for an instruction that it cannot execute; the retry then ends the
// process.
void OnIllegalInstruction(int, siginfo_t*, void* context) {
  greg_t* const cpu = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction instruction;
  if (Decode(reinterpret_cast<const uint8_t*>(cpu[REG_RIP]), cpu, instruction) &&
      Execute(instruction)) {
    cpu[REG_RIP] += instruction.length;
  } else {
    signal(SIGILL, SIG_DFL);
  }
}

// AVX-512 with bf16, and no tiles: bits of CPUID leaf 7.
bool NeedsEmulation() {
  constexpr unsigned kTilesInEdx = 1u << 24;
  constexpr unsigned kBFloat16InEax = 1u << 5;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTilesInEdx) != 0) return false;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a & kBFloat16InEax) != 0 && WidestInstructionSet() == InstructionSet::kAvx512;
}

}  // namespace

bool EmulateTiles() {
  if (!NeedsEmulation()) return false;
  // The first call must not come from a signal handler.
  ChosenInstructionSet();
  struct sigaction action = {};
  action.sa_sigaction = &OnIllegalInstruction;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGILL, &action, nullptr) == 0;
}

}  // namespace kaon::kernels

#else

namespace kaon::kernels {
bool EmulateTiles() { return false; }
}  // namespace kaon::kernels

#endif
