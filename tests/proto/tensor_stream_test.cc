#include "proto/tensor_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "proto/crc32c.h"

namespace kaon::proto {
namespace {

using SliceVector = std::vector<absl::Span<const std::byte>>;

absl::Span<const std::byte> Bytes(const std::string& text, size_t from = 0,
                                  size_t size = std::string::npos) {
  const size_t end = size == std::string::npos ? text.size() : from + size;
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()) + from, end - from);
}

SliceVector CutEvery(const std::string& text, size_t size) {
  SliceVector slices;
  for (size_t at = 0; at < text.size(); at += size) {
    slices.push_back(Bytes(text, at, std::min(size, text.size() - at)));
  }
  return slices;
}

std::string Flatten(Slices slices) {
  std::string flat;
  for (const auto& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.data()), slice.size());
  }
  return flat;
}

v1::PushRequest ChunkRequest(size_t payload_bytes) {
  v1::PushRequest request;
  request.mutable_payload()->resize(payload_bytes);
  for (size_t i = 0; i < payload_bytes; ++i)
    (*request.mutable_payload())[i] = static_cast<char>(i * 7);
  v1::TensorChunk* chunk = request.mutable_chunk();
  chunk->set_parameter_id(300);
  chunk->set_micro_batch(2);
  chunk->set_offset(1 << 20);
  chunk->set_num_elements(payload_bytes / 4);
  chunk->set_dtype(v1::DTYPE_FLOAT32);
  chunk->set_crc32c(proto::Crc32c(request.payload().data(), payload_bytes));
  return request;
}

// What DecodePush must agree with: the generated parser, on the same bytes.
void ExpectReadsAsGeneratedParser(const std::string& wire, size_t cut) {
  v1::PushRequest expected;
  const bool accepted = expected.ParseFromString(wire);
  const SliceVector slices = CutEvery(wire, cut);
  const absl::StatusOr<DecodedPush> decoded = DecodePush(slices);
  ASSERT_EQ(decoded.ok(), accepted) << decoded.status() << " cut " << cut;
  if (!accepted) {
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  v1::PushRequest actual = decoded->message;
  EXPECT_TRUE(actual.payload().empty());
  *actual.mutable_payload() = Flatten(decoded->payload);
  EXPECT_EQ(actual.SerializeAsString(), expected.SerializeAsString());
}

TEST(TensorStreamTest, HeaderAndPayloadAreWhatTheGeneratedParserReads) {
  for (size_t payload_bytes : {size_t{0}, size_t{4}, size_t{200}, size_t{70000}, kMaxChunkBytes}) {
    const v1::PushRequest request = ChunkRequest(payload_bytes);
    const std::string wire = EncodeChunkHeader(request.chunk(), payload_bytes) + request.payload();
    v1::PushRequest as_push;
    ASSERT_TRUE(as_push.ParseFromString(wire));
    EXPECT_EQ(as_push.SerializeAsString(), request.SerializeAsString());
    v1::PullResponse as_pull;
    ASSERT_TRUE(as_pull.ParseFromString(wire));
    EXPECT_EQ(as_pull.payload(), request.payload());
    EXPECT_EQ(as_pull.chunk().SerializeAsString(), request.chunk().SerializeAsString());
  }
}

TEST(TensorStreamTest, LeavesAPayloadThatIsLastWhereItWasReceived) {
  const v1::PushRequest request = ChunkRequest(1000);
  const std::string header = EncodeChunkHeader(request.chunk(), 1000);
  const SliceVector slices = {Bytes(header, 0, 3), Bytes(header, 3),
                              Bytes(request.payload(), 0, 400), Bytes(request.payload(), 400)};
  const absl::StatusOr<DecodedPush> decoded = DecodePush(slices);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->payload.size(), 2u);
  EXPECT_EQ(decoded->payload[0].data(), slices[2].data());
  EXPECT_EQ(decoded->payload[1].data(), slices[3].data());
  EXPECT_EQ(decoded->payload_bytes(), 1000u);
  EXPECT_TRUE(decoded->owned.empty());
}

TEST(TensorStreamTest, CopiesAPayloadThatIsNotLast) {
  const v1::PushRequest request = ChunkRequest(8);
  std::string wire = "\x7a\x08" + request.payload();
  v1::PushRequest rest = request;
  rest.clear_payload();
  wire += rest.SerializeAsString();
  absl::StatusOr<DecodedPush> decoded = DecodePush({Bytes(wire)});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const DecodedPush moved = *std::move(decoded);
  EXPECT_EQ(Flatten(moved.payload), request.payload());
  EXPECT_EQ(moved.owned.size(), 8u);
  EXPECT_EQ(moved.message.SerializeAsString(), rest.SerializeAsString());
}

TEST(TensorStreamTest, TakesTheLastOfTwoPayloadsAsTheGeneratedParserDoes) {
  const std::string wire = std::string("\x7a\x02") + "ab" + "\x7a\x01" + "c";
  const absl::StatusOr<DecodedPush> decoded = DecodePush({Bytes(wire)});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(Flatten(decoded->payload), "c");
}

TEST(TensorStreamTest, ReadsTruncatedMessagesAsTheGeneratedParserDoes) {
  const std::string wire = ChunkRequest(300).SerializeAsString();
  for (size_t size = 0; size <= wire.size(); ++size) {
    for (size_t cut : {size_t{1}, size_t{5}, size_t{4096}}) {
      ExpectReadsAsGeneratedParser(wire.substr(0, size), cut);
    }
  }
}

TEST(TensorStreamTest, ReadsMutatedMessagesAsTheGeneratedParserDoes) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  v1::PushRequest open;
  open.mutable_open()->set_job("gpt2");
  open.mutable_open()->mutable_attempt()->set_number(3);
  v1::PushRequest finish;
  for (uint32_t id : {1, 200, 70000}) finish.mutable_finish()->add_missing_parameters(id);
  finish.mutable_finish()->set_loss(2.5);
  const std::string seeds[] = {ChunkRequest(40).SerializeAsString(), open.SerializeAsString(),
                               finish.SerializeAsString(),
                               finish.SerializeAsString() + ChunkRequest(4).SerializeAsString()};
  for (int i = 0; i < 40000; ++i) {
    std::string wire = seeds[random() % 4];
    for (uint32_t edits = 1 + random() % 3; edits > 0 && !wire.empty(); --edits) {
      const size_t at = random() % wire.size();
      switch (random() % 4) {
        case 0:
          wire[at] = static_cast<char>(random());
          break;
        case 1:
          wire.insert(wire.begin() + at, static_cast<char>(random()));
          break;
        case 2:
          wire.erase(wire.begin() + at);
          break;
        default:
          wire.resize(at);
      }
    }
    ExpectReadsAsGeneratedParser(wire, 1 + random() % 64);
    if (HasFailure()) FAIL() << "iteration " << i;
  }
}

TEST(TensorStreamTest, ChecksTheChecksumOverAllSlices) {
  v1::PushRequest request = ChunkRequest(400);
  const SliceVector slices = CutEvery(request.payload(), 7);
  EXPECT_TRUE(VerifyChecksum(request.chunk(), slices).ok());
  (*request.mutable_payload())[399] ^= 1;
  const absl::Status status = VerifyChecksum(request.chunk(), slices);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("parameter 300 micro-batch 2 elements from 1048576"),
            absl::string_view::npos)
      << status;
}

TEST(TensorStreamTest, KnowsTheSizesOfWireTypes) {
  EXPECT_EQ(WireSizeOf(v1::DTYPE_FLOAT32), 4u);
  EXPECT_EQ(WireSizeOf(v1::DTYPE_BFLOAT16), 2u);
  EXPECT_EQ(WireSizeOf(v1::DTYPE_FLOAT16), 2u);
  EXPECT_EQ(WireSizeOf(v1::DTYPE_UNSPECIFIED), 0u);
  EXPECT_EQ(WireSizeOf(static_cast<v1::DType>(77)), 0u);
}

}  // namespace
}  // namespace kaon::proto
