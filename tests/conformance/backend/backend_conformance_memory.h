// Conformance of a backend's memory: allocations, copies, and facts about bytes. Part of the suite
// of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MEMORY_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MEMORY_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/float_bits.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/tensor.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

// Bytes that differ from their neighbours at any distance that matters.
inline std::vector<std::byte> SomeBytes(size_t n, uint32_t seed) {
  std::vector<std::byte> bytes(n);
  uint32_t random = seed;
  for (std::byte& byte : bytes) {
    random = random * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(random >> 24);
  }
  return bytes;
}

inline std::vector<std::byte> BytesIn(Backend& backend, ConstRegion region) {
  std::vector<std::byte> bytes(region.size());
  backend.CopyOut(region, absl::MakeSpan(bytes));
  return bytes;
}

TEST_P(BackendConformanceTest, AllocatesAlignedZerosInItsSpace) {
  for (const uint64_t bytes : {1, 63, 64, 65, 4097, 5 << 20}) {
    // Memory that was used before is zeroed again.
    for (int turn = 0; turn < 2; ++turn) {
      const absl::StatusOr<Region> region = backend_->Allocate(bytes);
      ASSERT_TRUE(region.ok()) << region.status();
      EXPECT_EQ(region->size(), bytes);
      EXPECT_EQ(region->space(), backend_->space());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(region->data()) % 64, 0u) << bytes;
      EXPECT_EQ(BytesIn(*backend_, *region), std::vector<std::byte>(bytes)) << bytes;
      backend_->CopyIn(std::vector<std::byte>(bytes, std::byte{0xff}), *region);
      backend_->Free(*region);
    }
  }
}

TEST_P(BackendConformanceTest, NamesItsMemoryAndDevice) {
  EXPECT_FALSE(backend_->memory_tier().empty());
  EXPECT_FALSE(backend_->device_class().empty());
  EXPECT_EQ(backend_->space() == Space::kHost, backend_->memory_tier() == "cpu");
}

// Sizes and offsets need no alignment. Bytes around a copy keep their values.
TEST_P(BackendConformanceTest, CopiesBytesInAndOutAndAcross) {
  constexpr uint64_t kBytes = 70001;
  const Tensor from(*backend_, SomeBytes(kBytes, 1));
  for (const uint64_t size : {0, 1, 15, 4096, 65537}) {
    for (const uint64_t offset : {0, 1, 64, 4099}) {
      std::vector<std::byte> expected = SomeBytes(kBytes, 2);
      const Tensor to(*backend_, expected);
      const std::vector<std::byte> written = SomeBytes(size, 3);
      backend_->CopyIn(written, to.region().Sub(offset, size));
      std::copy(written.begin(), written.end(), expected.begin() + offset);
      EXPECT_EQ(BytesIn(*backend_, to.region()), expected) << size << " at " << offset;
      backend_->Copy(from.region().Sub(7, size), to.region().Sub(offset, size));
      const std::vector<std::byte> copied = SomeBytes(kBytes, 1);
      std::copy_n(copied.begin() + 7, size, expected.begin() + offset);
      EXPECT_EQ(BytesIn(*backend_, to.region()), expected) << size << " at " << offset;
      EXPECT_EQ(BytesIn(*backend_, to.region().Sub(offset, size)),
                std::vector<std::byte>(copied.begin() + 7, copied.begin() + 7 + size));
    }
  }
}

TEST_P(BackendConformanceTest, CopiesThroughItsStagingMemory) {
  const std::vector<std::byte> bytes = SomeBytes(100000, 4);
  const absl::StatusOr<absl::Span<std::byte>> staging = backend_->AllocateStaging(bytes.size());
  ASSERT_TRUE(staging.ok()) << staging.status();
  ASSERT_EQ(staging->size(), bytes.size());
  std::copy(bytes.begin(), bytes.end(), staging->begin());
  const Tensor tensor(*backend_, std::vector<std::byte>(bytes.size()));
  backend_->CopyIn(*staging, tensor.region());
  EXPECT_EQ(BytesIn(*backend_, tensor.region()), bytes);
  std::fill(staging->begin(), staging->end(), std::byte{0});
  backend_->CopyOut(tensor.region(), *staging);
  EXPECT_EQ(memcmp(staging->data(), bytes.data(), bytes.size()), 0);
  backend_->FreeStaging(*staging);
}

// The sizes are around words, blocks of the digest and the ranges of threads. A slot that is not
// fp32 may end inside a word.
TEST_P(BackendConformanceTest, DigestsAllBytesAsTheirWords) {
  for (const size_t n : {0, 1, 3, 4, 5, 2047, 2048, 2049, 66000, 1048583}) {
    const std::vector<std::byte> bytes = SomeBytes(n, 5);
    const Tensor tensor(*backend_, bytes);
    for (const uint32_t slot : {0, 2}) {
      EXPECT_EQ(backend_->Digest(9, slot, tensor.region()),
                TensorDigester(9, slot).OfBytes(bytes, 0))
          << n;
    }
  }
}

TEST_P(BackendConformanceTest, DigestsFloatsAsTheWeightsOfAnUpdate) {
  for (const size_t n : {1, 511, 512, 513, 70001}) {
    const std::vector<float> values = reference::GaussianVector(n, 6);
    EXPECT_EQ(backend_->Digest(3, kWeightSlot, Tensor(*backend_, values).region()),
              TensorDigest(3, kWeightSlot, values));
  }
}

TEST_P(BackendConformanceTest, FindsTheLargestMagnitude) {
  for (const size_t n : {1, 15, 16, 17, 4097, 200001}) {
    for (const float largest : {5e6f, -5e6f, HUGE_VALF}) {
      for (const size_t at : {size_t{0}, n / 2, n - 1}) {
        std::vector<float> values = reference::GaussianVector(n, 7);
        values[at] = largest;
        EXPECT_EQ(backend_->LargestMagnitude(Tensor(*backend_, values).region()),
                  BitsOf(std::fabs(largest)));
        values[at] = std::nanf("");
        EXPECT_GT(backend_->LargestMagnitude(Tensor(*backend_, values).region()),
                  BitsOf(HUGE_VALF));
      }
    }
  }
  EXPECT_EQ(backend_->LargestMagnitude(Tensor(*backend_, std::vector<float>(9, -0.0f)).region()),
            0u);
  EXPECT_EQ(backend_->LargestMagnitude(Tensor(*backend_, std::vector<float>()).region()), 0u);
}

// The bytes need no alignment.
TEST_P(BackendConformanceTest, RoundsAsTheHostDoes) {
  for (const size_t n : {0, 1, 17, 4099, 262147}) {
    std::vector<float> values = reference::GaussianVector(n, 8);
    // Ties, overflows, numbers that are subnormal in a half, zeros and numbers that are none.
    const std::vector<float> special = {0.0f,    -0.0f,     1 + 0x1p-8f, 1 + 0x3p-8f,
                                        3.4e38f, 65520.0f,  1e-7f,       1e-42f,
                                        -65519,  HUGE_VALF, -HUGE_VALF};
    for (size_t i = 0; i < n && i < special.size(); ++i) values[n - 1 - i] = special[i];
    const Tensor tensor(*backend_, values);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const std::vector<std::byte> expected = Encode(dtype, values);
      std::vector<std::byte> rounded(expected.size());
      backend_->RoundOut(tensor.region(), dtype, rounded.data() + 1);
      EXPECT_EQ(rounded, expected) << NameOf(dtype) << " " << n;
      // In its own memory, aligned for one element.
      const uint64_t bytes = n * SizeOf(dtype);
      const Tensor memory(*backend_, std::vector<std::byte>(bytes + SizeOf(dtype)));
      const Region to = memory.region().Sub(SizeOf(dtype), bytes);
      backend_->Round(tensor.region(), dtype, to);
      backend_->CopyOut(to, absl::MakeSpan(rounded).subspan(1));
      EXPECT_EQ(rounded, expected) << NameOf(dtype) << " " << n;
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MEMORY_H_
