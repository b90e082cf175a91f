#include "kernels/reduce/digest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "kernels/vector_dispatch.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// Mixes a word by docs/formats.md.
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t TermOf(uint64_t parameter_id, uint64_t slot, uint64_t index, float value) {
  const uint64_t key = Mixed(Mixed(0x4b616f6e54656e73u) ^ (parameter_id << 32 | slot)) | 1;
  const uint64_t multiplier = Mixed(index % 512) >> 32 | 0x80000001u;
  uint32_t word;
  memcpy(&word, &value, sizeof(word));
  return key + word * multiplier * (Mixed(key ^ index / 512) | 1);
}

// Ranges that begin and end anywhere in a block, of one that is whole and of several.
TEST(DigestTest, IsTheSumOfWhatTheFormatSaysWithEveryInstructionSet) {
  const std::vector<float> x = reference::GaussianVector(2100, 5);
  for (const InstructionSet isa : InstructionSets()) {
    ChosenInstructionSet() = isa;
    for (const uint64_t start : {uint64_t{0}, uint64_t{1}, uint64_t{511}, uint64_t{512},
                                 (uint64_t{1} << 32) - 700, uint64_t{1} << 41}) {
      for (const size_t n : {1, 63, 511, 512, 513, 1024, 1100, 2100}) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; ++i) sum += TermOf(3, 2, start + i, x[i]);
        EXPECT_EQ(TensorDigest(3, 2, absl::MakeSpan(x).first(n), start), sum)
            << static_cast<int>(isa) << " " << start << " " << n;
      }
    }
  }
  ChosenInstructionSet() = WidestInstructionSet();
}

// Signs are the bits whose changes cancel most easily, and blocks the places that are most alike.
TEST(DigestTest, TwoChangedSignsAndTwoExchangedElementsCount) {
  std::vector<float> x = reference::GaussianVector(1500, 6);
  const uint64_t digest = TensorDigest(1, 2, x);
  for (size_t i = 0; i < x.size(); i += 7) {
    for (const size_t j : {i + 1, i + 256, i + 512}) {
      if (j >= x.size()) continue;
      x[i] = -x[i];
      x[j] = -x[j];
      ASSERT_NE(TensorDigest(1, 2, x), digest) << i << " " << j;
      x[i] = -x[i];
      x[j] = -x[j];
      std::swap(x[i], x[j]);
      ASSERT_NE(TensorDigest(1, 2, x), digest) << i << " " << j;
      std::swap(x[i], x[j]);
    }
  }
  ASSERT_EQ(TensorDigest(1, 2, x), digest);
}

TEST(DigestTest, RangesAddUpInAnyOrder) {
  const std::vector<float> x = reference::GaussianVector(1000, 1);
  const absl::Span<const float> all(x);
  const uint64_t whole = TensorDigest(3, 1, all);
  EXPECT_EQ(TensorDigest(3, 1, all.subspan(700), 700) + TensorDigest(3, 1, all.subspan(0, 13)) +
                TensorDigest(3, 1, all.subspan(13, 687), 13),
            whole);
}

TEST(DigestTest, RangesAddUpAcrossTheFourGibielementMark) {
  const std::vector<float> x = reference::GaussianVector(100, 2);
  const absl::Span<const float> all(x);
  const uint64_t start = (uint64_t{1} << 32) - 40;
  uint64_t sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += TensorDigest(3, 1, all.subspan(i, 1), start + i);
  EXPECT_EQ(TensorDigest(3, 1, all, start), sum);
  EXPECT_NE(TensorDigest(3, 1, all.subspan(0, 1), 5),
            TensorDigest(3, 1, all.subspan(0, 1), (uint64_t{1} << 32) + 5));
}

TEST(DigestTest, NothingIsZero) { EXPECT_EQ(TensorDigest(1, 2, {}), 0u); }

TEST(DigestTest, EverySingleBitOfEveryElementCounts) {
  const std::vector<float> x = reference::GaussianVector(64, 3);
  std::set<uint64_t> digests = {TensorDigest(1, 0, x)};
  for (size_t i = 0; i < x.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      std::vector<float> changed = x;
      uint32_t bits;
      memcpy(&bits, &changed[i], sizeof(bits));
      bits ^= 1u << bit;
      memcpy(&changed[i], &bits, sizeof(bits));
      digests.insert(TensorDigest(1, 0, changed));
    }
  }
  EXPECT_EQ(digests.size(), 64u * 32 + 1);
}

TEST(DigestTest, SwappedAndMovedElementsCount) {
  const std::vector<float> x = {1.0f, 2.0f, 0.0f, 4.0f};
  const uint64_t digest = TensorDigest(1, 0, x);
  EXPECT_NE(TensorDigest(1, 0, {2.0f, 1.0f, 0.0f, 4.0f}), digest);
  EXPECT_NE(TensorDigest(1, 0, {1.0f, 2.0f, 4.0f, 0.0f}), digest);
  EXPECT_NE(TensorDigest(1, 0, {1.0f, 2.0f, -0.0f, 4.0f}), digest);
  EXPECT_NE(TensorDigest(1, 0, x, 1), digest);
}

TEST(DigestTest, ParameterAndSlotCount) {
  const std::vector<float> zeros(8, 0.0f);
  std::set<uint64_t> digests;
  for (uint32_t parameter = 0; parameter < 10; ++parameter) {
    for (const uint32_t slot : {kWeightSlot, 1u, 2u, kGradientSlot}) {
      digests.insert(TensorDigest(parameter, slot, zeros));
      digests.insert(FactDigest(parameter, slot, 0));
      digests.insert(FactDigest(parameter, slot, 1));
    }
  }
  EXPECT_EQ(digests.size(), 10u * 4 * 3);
}

TEST(DigestTest, PiecesAddUpToTheWhole) {
  const std::vector<float> x = reference::GaussianVector(1000, 4);
  const absl::Span<const float> all(x);
  const TensorDigester digester(3, 1);
  EXPECT_EQ(digester.Of(all.subspan(0, 513), 0) + digester.Of(all.subspan(513), 513),
            TensorDigest(3, 1, all));
}

// Encoded state: a slot of 10 bytes is 3 words, the last of which ends in zeros.
TEST(DigestTest, BytesAreWordsFilledUpWithZeros) {
  const std::vector<float> words = {1.5f, -2.0f, 3.1f};
  std::vector<std::byte> bytes(12);
  memcpy(bytes.data(), words.data(), 12);
  const absl::Span<const std::byte> all(bytes);
  const TensorDigester digester(3, 1);
  EXPECT_EQ(digester.OfBytes(all, 0), TensorDigest(3, 1, words));
  EXPECT_EQ(digester.OfBytes(all.first(8), 0) + digester.OfBytes(all.subspan(8), 8),
            TensorDigest(3, 1, words));
  bytes[10] = bytes[11] = std::byte{0};
  EXPECT_EQ(digester.OfBytes(all.first(10), 0), digester.OfBytes(all, 0));
  EXPECT_NE(digester.OfBytes(all.first(9), 0), digester.OfBytes(all, 0));
  EXPECT_DEATH(digester.OfBytes(all, 2), "bytes from 2, must be a multiple of 4");
}

// Written down once: stored digests must mean the same after an upgrade.
TEST(DigestTest, ValuesAreStable) {
  const std::vector<float> x = {0.0f, 1.0f, -2.5f};
  EXPECT_EQ(TensorDigest(7, 1, x, 10), 9741742910744571667u);
  EXPECT_EQ(FactDigest(7, 1, 42), 487582585502570665u);
}

}  // namespace
}  // namespace kaon::kernels
