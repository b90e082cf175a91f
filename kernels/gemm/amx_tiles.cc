#include "kernels/gemm/amx_tiles.h"

#include <glog/logging.h>

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#endif

namespace kaon::kernels {

#if defined(__x86_64__) && defined(__linux__)

#define KAON_TARGET_AMX \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace {

constexpr int64_t kTileElements = 512;
constexpr int kTileBytesPerRow = 64;
constexpr int kTileRows = 16;

// Operand of LDTILECFG: every tile has 16 rows of 64 bytes.
struct alignas(64) TileSettings {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// The compiler's tile intrinsics do not declare the memory that they read.
inline void MemoryIsRead() { asm volatile("" ::: "memory"); }

KAON_TARGET_AMX void SetUpTiles() {
  TileSettings settings;
  for (int i = 0; i < 8; ++i) {
    settings.bytes_per_row[i] = kTileBytesPerRow;
    settings.rows[i] = kTileRows;
  }
  asm volatile("" ::"r"(&settings) : "memory");
  _tile_loadconfig(&settings);
}

KAON_TARGET_AMX void ReleaseTiles() { _tile_release(); }

// `to` <- the transpose of 16 x 16 pairs.
KAON_TARGET_AMX void TransposePairs(const uint16_t* from, uint16_t* to) {
  __m512i r[16];
  __m512i t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(from + 32 * i);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + 4 + j], 0x88);
      t[i + 4 + j] = _mm512_shuffle_i32x4(r[i + j], r[i + 4 + j], 0xdd);
    }
  }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + 32 * i, r[i]);
}

KAON_TARGET_AMX void PackPairsOfRows(const uint16_t* block, uint16_t* packed) {
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t pair = 0; pair < 16; ++pair) {
    const __m512i even = _mm512_load_si512(block + 64 * pair);
    const __m512i odd = _mm512_load_si512(block + 64 * pair + 32);
    _mm512_store_si512(packed + 32 * pair, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(packed + kTileElements + 32 * pair,
                       _mm512_permutex2var_epi16(even, high, odd));
  }
}

// Prefetches the packed block after the next into the first-level cache. The tiles process a block
// in fewer cycles than the second-level cache needs to deliver it.
KAON_TARGET_AMX inline void FetchAhead(const uint16_t* packed_b) {
  for (int64_t line = 0; line < 2 * kBlockElements; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(packed_b + 2 * kBlockElements) + line, _MM_HINT_T0);
  }
}

// Tiles 0 .. 3 are the sums, 4 and 5 rows of A, 6 and 7 columns of B.
KAON_TARGET_AMX void MultiplyIntoTiles(const uint16_t* a, const uint16_t* b, int64_t inner,
                                       bool adds, float* sums) {
  MemoryIsRead();
  if (adds) {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + 256, 64);
    _tile_loadd(2, sums + 512, 64);
    _tile_loadd(3, sums + 768, 64);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < inner; ++k, a += kBlockElements, b += kBlockElements) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileElements, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileElements, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    FetchAhead(b);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

KAON_TARGET_AMX inline __m512 Widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

KAON_TARGET_AMX void RoundRows(const float* sums, float alpha, float beta, const uint16_t* addend,
                               uint16_t* to) {
  const __m512 scale = _mm512_set1_ps(alpha);
  const __m512 share = _mm512_set1_ps(beta);
  for (int64_t row = 0; row < kBlockSide; ++row) {
    const float* left = sums + row / 16 * 512 + row % 16 * 16;
    __m512 low = _mm512_mul_ps(scale, _mm512_load_ps(left));
    __m512 high = _mm512_mul_ps(scale, _mm512_load_ps(left + 256));
    if (beta != 0) {
      const __m512i added = _mm512_load_si512(addend + row * kBlockSide);
      low = _mm512_fmadd_ps(share, Widen(_mm512_castsi512_si256(added)), low);
      high = _mm512_fmadd_ps(share, Widen(_mm512_extracti64x4_epi64(added, 1)), high);
    }
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    __builtin_memcpy(to + row * kBlockSide, &rounded, sizeof(rounded));
  }
}

}  // namespace

AmxTiles::AmxTiles() { SetUpTiles(); }
AmxTiles::~AmxTiles() { ReleaseTiles(); }

void PackBlock(const uint16_t* block, uint16_t* packed) { PackPairsOfRows(block, packed); }

void PackTransposedBlock(const uint16_t* block, uint16_t* packed) {
  TransposePairs(block, packed);
  TransposePairs(block + kTileElements, packed + kTileElements);
}

void MultiplyBlocks(const uint16_t* a, const uint16_t* packed_b, int64_t inner, bool adds,
                    SumsOfBlock& sums) {
  MultiplyIntoTiles(a, packed_b, inner, adds, sums.values);
}

void RoundSums(const SumsOfBlock& sums, float alpha, float beta, const uint16_t* addend,
               uint16_t* to) {
  RoundRows(sums.values, alpha, beta, addend, to);
}

void TransposeBlock(const uint16_t* block, uint16_t* to) {
  alignas(64) uint16_t packed[kBlockElements];
  PackPairsOfRows(block, packed);
  PackTransposedBlock(packed, to);
}

#else

namespace {
[[noreturn]] void NoTiles() { LOG(FATAL) << "AMX tiles on a machine without"; }
}  // namespace

AmxTiles::AmxTiles() { NoTiles(); }
AmxTiles::~AmxTiles() = default;
void PackBlock(const uint16_t*, uint16_t*) { NoTiles(); }
void PackTransposedBlock(const uint16_t*, uint16_t*) { NoTiles(); }
void MultiplyBlocks(const uint16_t*, const uint16_t*, int64_t, bool, SumsOfBlock&) { NoTiles(); }
void RoundSums(const SumsOfBlock&, float, float, const uint16_t*, uint16_t*) { NoTiles(); }
void TransposeBlock(const uint16_t*, uint16_t*) { NoTiles(); }

#endif

}  // namespace kaon::kernels
