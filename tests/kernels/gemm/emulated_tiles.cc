// kernels/gemm/amx_tiles.h as it is over emulated instructions: there are tiles wherever these can
// be.
#include "kernels/gemm/amx_tiles.h"
#include "tests/kernels/gemm/tile_emulator.h"

namespace kaon::kernels {

bool HasAmx() {
  static const bool has_amx = EmulateTiles();
  return has_amx;
}

}  // namespace kaon::kernels
