// AMX's tile instructions on a CPU that has AVX-512 but no tiles: each is an illegal one there, and
// what handles its signal does to registers in memory what Intel's manual says (Volume 2, LDTILECFG
// to TILEZERO, TDPBF16PS). Thousands of times slower than tiles, but it runs the very instructions
// of kernels/gemm/amx_tiles.cc. Only full tiles, 16 rows of 64 bytes, and products of bf16;
// anything else, or a tile before LDTILECFG, ends the process as it would without.
#ifndef KAON_TESTS_KERNELS_GEMM_TILE_EMULATOR_H_
#define KAON_TESTS_KERNELS_GEMM_TILE_EMULATOR_H_

namespace kaon::kernels {

// From here on, in the whole process, SIGILL is the emulator's, and each thread has registers of
// its own. False, and nothing done, on a machine that has tiles or lacks what else
// kernels/gemm/amx_tiles.cc needs. Any thread, before the first such instruction.
bool EmulateTiles();

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_GEMM_TILE_EMULATOR_H_
