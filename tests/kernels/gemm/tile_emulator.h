// Emulates AMX's tile instructions on a CPU that has AVX-512 but no tiles, where each of them is
// illegal. The signal handler changes registers in memory as Intel's manual says (Volume 2,
// LDTILECFG to TILEZERO, TDPBF16PS). Thousands of times slower than tiles, but it runs the very
// instructions of kernels/gemm/amx_tiles.cc.
//
// Supports only full tiles, 16 rows of 64 bytes, and products of bf16. Any other illegal
// instruction, or a tile before LDTILECFG, ends the process as it does without the emulator.
#ifndef KAON_TESTS_KERNELS_GEMM_TILE_EMULATOR_H_
#define KAON_TESTS_KERNELS_GEMM_TILE_EMULATOR_H_

namespace kaon::kernels {

// Installs the emulator as the handler of SIGILL for the whole process; each thread has registers
// of its own. Returns false and does nothing if the machine has tiles or lacks what else
// kernels/gemm/amx_tiles.cc needs. Any thread, before the first such instruction.
bool EmulateTiles();

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_GEMM_TILE_EMULATOR_H_
