#include "client/transport/chunk_message.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kaon/v1/shard_data.pb.h"
#include "proto/crc32c.h"

namespace kaon::client {
namespace {

class ChunkMessageTest : public ::testing::Test {
 protected:
  LeasedChunks Chunk() {
    LeasedChunks leased;
    ChunkToSend& chunk = leased.chunks.emplace_back();
    chunk.key = {3, 1};
    chunk.offset = 2;
    chunk.num_elements = tensor_.size() - 2;
    chunk.dtype = DType::kFloat32;
    chunk.payload = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tensor_.data() + 2),
                                        (tensor_.size() - 2) * 4);
    leased.lease = std::shared_ptr<const void>(&tensor_, [this](const void*) { freed_ = true; });
    return leased;
  }

  std::vector<float> tensor_ = std::vector<float>(1000, 0.5f);
  bool freed_ = false;
};

TEST_F(ChunkMessageTest, SendsThePayloadFromWhereItLies) {
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(BuildChunkMessage(Chunk()).Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(static_cast<const void*>(slices[1].begin()), tensor_.data() + 2);
  EXPECT_EQ(slices[1].size(), 998u * 4);
}

TEST_F(ChunkMessageTest, HoldsTheLeaseUntilTheLastSliceIsReleased) {
  std::optional<grpc::ByteBuffer> message = BuildChunkMessage(Chunk());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(message->Dump(&slices).ok());
  message.reset();
  EXPECT_FALSE(freed_);
  slices.clear();
  EXPECT_TRUE(freed_);
}

TEST_F(ChunkMessageTest, IsWhatTheGeneratedParserReads) {
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(BuildChunkMessage(Chunk()).Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PushRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  EXPECT_EQ(request.chunk().parameter_id(), 3u);
  EXPECT_EQ(request.chunk().micro_batch(), 1u);
  EXPECT_EQ(request.chunk().offset(), 2u);
  EXPECT_EQ(request.chunk().num_elements(), 998u);
  EXPECT_EQ(request.chunk().dtype(), v1::DTYPE_FLOAT32);
  EXPECT_EQ(request.chunk().crc32c(), proto::Crc32c(tensor_.data() + 2, 998 * 4));
  EXPECT_EQ(request.payload(),
            std::string(reinterpret_cast<const char*>(tensor_.data() + 2), 998 * 4));
}

TEST_F(ChunkMessageTest, ReadsAChunkWithoutCopyingIt) {
  const absl::StatusOr<ReceivedChunks> received = ReadChunkMessage(BuildChunkMessage(Chunk()));
  ASSERT_TRUE(received.ok()) << received.status();
  ASSERT_EQ(received->decoded.payload.size(), 1u);
  EXPECT_EQ(static_cast<const void*>(received->decoded.payload[0].data()), tensor_.data() + 2);
  EXPECT_EQ(received->decoded.message.chunk().offset(), 2u);
}

TEST_F(ChunkMessageTest, SendsSeveralChunksInOneMessage) {
  LeasedChunks leased = Chunk();
  leased.chunks.push_back(leased.chunks[0]);
  leased.chunks[1].key = {4, 0};
  leased.chunks[1].offset = 0;
  leased.chunks[1].num_elements = 5;
  leased.chunks[1].payload = leased.chunks[1].payload.first(20);
  const absl::StatusOr<ReceivedChunks> received = ReadChunkMessage(BuildChunkMessage(leased));
  ASSERT_TRUE(received.ok()) << received.status();
  const absl::StatusOr<proto::ChunkViews> views = proto::SplitPayload(received->decoded);
  ASSERT_TRUE(views.ok()) << views.status();
  ASSERT_EQ(views->chunks.size(), 2u);
  EXPECT_EQ(views->chunks[1].chunk->parameter_id(), 4u);
  for (const proto::ChunkView& view : views->chunks) {
    EXPECT_TRUE(proto::VerifyChecksum(*view.chunk, view.payload).ok());
    EXPECT_EQ(static_cast<const void*>(view.payload.at(0).data()), tensor_.data() + 2);
  }
}

TEST_F(ChunkMessageTest, RefusesBytesThatAreNoChunk) {
  const grpc::Slice slice(std::string("\x1a\xff\xff"));
  EXPECT_EQ(ReadChunkMessage(grpc::ByteBuffer(&slice, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::client
