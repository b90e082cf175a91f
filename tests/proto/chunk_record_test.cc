#include "proto/chunk_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "proto/crc32c.h"
#include "proto/tensor_stream.h"

namespace kaon::proto {
namespace {

v1::TensorChunk ChunkOf(uint32_t parameter_id) {
  v1::TensorChunk chunk;
  chunk.set_parameter_id(parameter_id);
  chunk.set_num_elements(1);
  chunk.set_dtype(v1::DTYPE_FLOAT32);
  return chunk;
}

std::string Written(std::vector<v1::TensorChunk> chunks, const std::string& payload,
                    const std::vector<uint32_t>& crcs) {
  std::vector<std::byte> to(1000);
  const absl::StatusOr<size_t> size =
      WriteChunkRecord(absl::MakeSpan(chunks), payload.size(), to.data(), [&](std::byte* at) {
        std::memcpy(at, payload.data(), payload.size());
        for (size_t i = 0; i < crcs.size(); ++i) chunks[i].set_crc32c(crcs[i]);
        return absl::OkStatus();
      });
  EXPECT_TRUE(size.ok()) << size.status();
  return std::string(reinterpret_cast<const char*>(to.data()), size.value_or(0));
}

// Returns the message that the generated parser reads from the record.
v1::PushRequest Parsed(const std::string& record) {
  v1::PushRequest request;
  EXPECT_TRUE(request.ParseFromString(record));
  return request;
}

TEST(ChunkRecordTest, IsAMessageOfOneChunk) {
  const v1::PushRequest request = Parsed(Written({ChunkOf(3)}, "abcd", {7}));
  EXPECT_EQ(request.payload(), "abcd");
  EXPECT_EQ(request.chunk().parameter_id(), 3u);
  EXPECT_EQ(request.chunk().crc32c(), 7u);
}

TEST(ChunkRecordTest, IsAMessageOfPieces) {
  const v1::PushRequest request =
      Parsed(Written({ChunkOf(3), ChunkOf(4)}, "abcdefgh", {7, 0xffffffff}));
  EXPECT_EQ(request.payload(), "abcdefgh");
  ASSERT_EQ(request.pieces_size(), 2);
  EXPECT_EQ(request.pieces(1).crc32c(), 0xffffffff);
}

TEST(ChunkRecordTest, AChecksumOfZeroTakesNoRoom) {
  const std::string record = Written({ChunkOf(3), ChunkOf(4)}, "abcdefgh", {0, 7});
  const v1::PushRequest request = Parsed(record);
  EXPECT_EQ(request.payload(), "abcdefgh");
  EXPECT_EQ(request.pieces(0).crc32c(), 0u);
  EXPECT_EQ(request.pieces(1).crc32c(), 7u);
  EXPECT_EQ(record.size(), Written({ChunkOf(3), ChunkOf(4)}, "abcdefgh", {7, 7}).size() - 5);
}

TEST(ChunkRecordTest, FailsAsItsPayloadDoes) {
  std::vector<v1::TensorChunk> chunks = {ChunkOf(3)};
  std::byte to[100];
  const auto size = WriteChunkRecord(absl::MakeSpan(chunks), 4, to,
                                     [](std::byte*) { return absl::NotFoundError("gone"); });
  EXPECT_EQ(size.status(), absl::NotFoundError("gone"));
}

TEST(ChunkRecordTest, CopiesAndSumsUp) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16384}, size_t{100001}}) {
    std::vector<std::byte> from(size);
    for (size_t i = 0; i < size; ++i) from[i] = std::byte(i * 7);
    std::vector<std::byte> to(size);
    EXPECT_EQ(CopyWithCrc32c(from, to.data()), Crc32c(from.data(), from.size()));
    EXPECT_EQ(to, from);
  }
}

}  // namespace
}  // namespace kaon::proto
