#include "server/shard/gradients/chunk_check.h"

#include <gtest/gtest.h>

namespace kaon::shard {
namespace {

v1::TensorChunk Chunk(uint64_t offset, uint64_t num_elements, v1::DType dtype) {
  v1::TensorChunk chunk;
  chunk.set_offset(offset);
  chunk.set_num_elements(num_elements);
  chunk.set_dtype(dtype);
  return chunk;
}

void ExpectInvalid(const absl::Status& status, absl::string_view message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
}

TEST(CheckChunkTest, AcceptsWhatFits) {
  EXPECT_TRUE(CheckChunk({"w", 10, 0}, Chunk(0, 10, v1::DTYPE_FLOAT32), 40).ok());
  EXPECT_TRUE(CheckChunk({"w", 10, 0}, Chunk(9, 1, v1::DTYPE_FLOAT16), 2).ok());
  EXPECT_TRUE(CheckChunk({"w", 1 << 20, 0}, Chunk(0, 1 << 19, v1::DTYPE_BFLOAT16), 1 << 20).ok());
}

TEST(CheckChunkTest, NamesParameterFieldValueAndRange) {
  ExpectInvalid(CheckChunk({"w", 10, 0}, Chunk(0, 1, v1::DTYPE_UNSPECIFIED), 4),
                "parameter w: dtype 0 pushed, expecting 1 (fp32), 2 (bf16) or 3 (fp16)");
  ExpectInvalid(CheckChunk({"w", 10, 0}, Chunk(0, 0, v1::DTYPE_FLOAT32), 0),
                "parameter w: num_elements is 0, expecting 1 .. 262144");
  ExpectInvalid(CheckChunk({"w", 1 << 20, 0}, Chunk(0, 524289, v1::DTYPE_FLOAT16), 1048578),
                "parameter w: num_elements is 524289, expecting 1 .. 524288");
  ExpectInvalid(CheckChunk({"w", 10, 0}, Chunk(0, 2, v1::DTYPE_BFLOAT16), 8),
                "parameter w: payload has 8 bytes, expecting 4");
  ExpectInvalid(CheckChunk({"w", 10, 0}, Chunk(9, 2, v1::DTYPE_FLOAT32), 8),
                "parameter w: offset 9 + 2 elements pushed, it has 10");
}

TEST(CheckChunkTest, RefusesASmallChunkUnlessItEndsItsParameter) {
  const ChunkBounds bounds{"w", 1000, 64};
  EXPECT_TRUE(CheckChunk(bounds, Chunk(0, 16, v1::DTYPE_FLOAT32), 64).ok());
  EXPECT_TRUE(CheckChunk(bounds, Chunk(985, 15, v1::DTYPE_FLOAT32), 60).ok());
  EXPECT_TRUE(CheckChunk({"b", 1, 64}, Chunk(0, 1, v1::DTYPE_FLOAT32), 4).ok());
  ExpectInvalid(CheckChunk(bounds, Chunk(984, 15, v1::DTYPE_FLOAT32), 60),
                "parameter w: payload has 60 bytes, expecting at least 64 in a chunk that does not "
                "end the parameter");
}

TEST(CheckChunkTest, RefusesAnOffsetWhoseEndOverflows) {
  ExpectInvalid(CheckChunk({"w", 10, 0}, Chunk(~uint64_t{0}, 2, v1::DTYPE_FLOAT32), 8),
                "parameter w: offset 18446744073709551615 + 2 elements pushed, it has 10");
}

}  // namespace
}  // namespace kaon::shard
