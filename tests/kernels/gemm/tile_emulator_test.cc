#include "tests/kernels/gemm/tile_emulator.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace kaon::kernels {
namespace {

#if defined(__x86_64__)

constexpr int kTileBytes = 1024;

struct Settings {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void SetUpTiles(const Settings& settings = {}) {
  asm volatile("ldtilecfg %0" ::"m"(settings) : "memory");
}

std::vector<uint8_t> Counted(int bytes) {
  std::vector<uint8_t> counted(bytes);
  for (int i = 0; i < bytes; ++i) counted[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return counted;
}

class TileEmulatorTest : public ::testing::Test {
 protected:
  static bool Emulates() {
    static const bool emulates = EmulateTiles();
    return emulates;
  }

  void SetUp() override {
    if (!Emulates()) GTEST_SKIP() << "this machine has AMX tiles, or no AVX-512 with bf16";
    SetUpTiles();
  }

  const std::vector<uint8_t> from_ = Counted(64 * kTileBytes);
  std::vector<uint8_t> to_ = std::vector<uint8_t>(kTileBytes);

  // Returns rows of `from_` that are `stride` bytes apart, from `offset` on.
  std::vector<uint8_t> Rows(int64_t offset, int64_t stride) const {
    std::vector<uint8_t> rows;
    for (int64_t row = 0; row < 16; ++row) {
      const auto begin = from_.begin() + offset + row * stride;
      rows.insert(rows.end(), begin, begin + 64);
    }
    return rows;
  }

  // Tile `kTile`, row by row.
  template <int kTile>
  const std::vector<uint8_t>& Stored() {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to_.data()), "r"(int64_t{64}), "i"(kTile)
                 : "memory");
    return to_;
  }
};

// Each way to write an operand that a compiler may choose for some addresses.
TEST_F(TileEmulatorTest, LoadsFromEveryKindOfAddress) {
  const uint8_t* from = from_.data();
  asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(from), "r"(int64_t{64}) : "memory");
  EXPECT_EQ(Stored<0>(), Rows(0, 64));
  asm volatile("tileloadd 64(%0,%1,2), %%tmm1" ::"r"(from), "r"(int64_t{64}) : "memory");
  EXPECT_EQ(Stored<1>(), Rows(64, 128));
  asm volatile("tileloadd -128(%0,%1,1), %%tmm2" ::"r"(from + 256), "r"(int64_t{96}) : "memory");
  EXPECT_EQ(Stored<2>(), Rows(128, 96));
  asm volatile("tileloadd 4096(%0,%1,8), %%tmm3" ::"r"(from), "r"(int64_t{64}) : "memory");
  EXPECT_EQ(Stored<3>(), Rows(4096, 512));
  asm volatile("mov %0, %%r13; mov %1, %%r12; tileloadd (%%r13,%%r12,1), %%tmm4" ::"r"(from),
               "r"(int64_t{192})
               : "memory", "r12", "r13");
  EXPECT_EQ(Stored<4>(), Rows(0, 192));
  asm volatile("mov %0, %%r12; mov %1, %%r9; tileloadd (%%r12,%%r9,4), %%tmm5" ::"r"(from),
               "r"(int64_t{16})
               : "memory", "r9", "r12");
  EXPECT_EQ(Stored<5>(), Rows(0, 64));
}

TEST_F(TileEmulatorTest, ReadsSettingsFromEveryKindOfAddress) {
  static const Settings fixed;
  const Settings local;
  asm volatile("ldtilecfg %0" ::"m"(fixed) : "memory");
  asm volatile("ldtilecfg (,%0,1)" ::"r"(&local) : "memory");
  asm volatile("mov %0, %%r13; ldtilecfg (%%r13)" ::"r"(&local) : "memory", "r13");
  asm volatile("mov %0, %%r12; ldtilecfg -8(%%r12)" ::"r"(&local.reserved[6]) : "memory", "r12");
}

TEST_F(TileEmulatorTest, ZeroesOneTileAndMultipliesIntoAnother) {
  const uint16_t one = 0x3f80;
  const std::vector<uint16_t> ones(kTileBytes / 2, one);
  asm volatile("tileloadd (%0,%1,1), %%tmm6" ::"r"(ones.data()), "r"(int64_t{64}) : "memory");
  asm volatile("tileloadd (%0,%1,1), %%tmm7" ::"r"(ones.data()), "r"(int64_t{64}) : "memory");
  asm volatile("tilezero %tmm1");
  asm volatile("tdpbf16ps %tmm7, %tmm6, %tmm1");
  asm volatile("tdpbf16ps %tmm7, %tmm6, %tmm1");
  asm volatile("tilezero %tmm6");
  std::vector<float> sums(kTileBytes / sizeof(float));
  std::memcpy(sums.data(), Stored<1>().data(), kTileBytes);
  EXPECT_EQ(sums, std::vector<float>(sums.size(), 64.0f));
  EXPECT_EQ(Stored<6>(), std::vector<uint8_t>(kTileBytes));
}

TEST_F(TileEmulatorTest, EachThreadHasItsOwnTiles) {
  asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(from_.data()), "r"(int64_t{64}) : "memory");
  std::thread([] {
    SetUpTiles();
    asm volatile("tilezero %tmm0");
    asm volatile("tilerelease");
  }).join();
  EXPECT_EQ(Stored<0>(), Rows(0, 64));
}

using TileEmulatorDeathTest = TileEmulatorTest;

template <typename Body>
void ExpectRefused(const Body& body) {
  EXPECT_EXIT(body(), ::testing::KilledBySignal(SIGILL), "");
}

TEST_F(TileEmulatorDeathTest, WhatTheCpuWouldRefuseEndsTheProcess) {
  ExpectRefused([] { asm volatile("ud2"); });
  ExpectRefused([] {
    asm volatile("tilerelease");
    asm volatile("tilezero %tmm0");
  });
  ExpectRefused([] { std::thread([] { asm volatile("tilezero %tmm0"); }).join(); });
  ExpectRefused([] { SetUpTiles(Settings{.palette = 2}); });
  ExpectRefused([] { SetUpTiles(Settings{.rows = {16, 16, 8}}); });
  // A ninth tile.
  ExpectRefused([] { SetUpTiles(Settings{.rows = {16, 16, 16, 16, 16, 16, 16, 16, 16}}); });
  // tdpbf16ps %tmm2, %tmm1, %tmm1, which the assembler refuses too: left tile and sums are one.
  ExpectRefused([] { asm volatile(".byte 0xc4, 0xe2, 0x6a, 0x5c, 0xc9"); });
  // tilezero of a tile beyond the eighth.
  ExpectRefused([] { asm volatile(".byte 0xc4, 0x62, 0x7b, 0x49, 0xc0"); });
}

#endif

}  // namespace
}  // namespace kaon::kernels
