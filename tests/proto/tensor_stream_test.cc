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

// Pieces of as many floats each, of parameters 10, 11, ...
v1::PushRequest PiecesRequest(const std::vector<size_t>& sizes) {
  v1::PushRequest request;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string payload(4 * sizes[i], static_cast<char>('a' + i % 26));
    v1::TensorChunk* piece = request.add_pieces();
    piece->set_parameter_id(static_cast<uint32_t>(10 + i));
    piece->set_num_elements(sizes[i]);
    piece->set_dtype(v1::DTYPE_FLOAT32);
    piece->set_crc32c(proto::Crc32c(payload.data(), payload.size()));
    *request.mutable_payload() += payload;
  }
  return request;
}

// Returns the error of SplitPayload for a request that was sent in slices of `cut` bytes.
std::string SplitError(const v1::PushRequest& request, size_t cut = 5) {
  const std::string wire = request.SerializeAsString();
  const SliceVector slices = CutEvery(wire, cut);
  const absl::StatusOr<DecodedPush> decoded = DecodePush(slices);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  const absl::StatusOr<ChunkViews> views = SplitPayload(*decoded);
  EXPECT_TRUE(views.ok() || absl::IsInvalidArgument(views.status())) << views.status();
  return std::string(views.status().message());
}

// Expects DecodePush to agree with the generated parser on the same bytes.
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
    const std::string wire =
        EncodeChunkHeader({request.chunk()}, payload_bytes) + request.payload();
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
  const std::string header = EncodeChunkHeader({request.chunk()}, 1000);
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
                               finish.SerializeAsString() + ChunkRequest(4).SerializeAsString(),
                               PiecesRequest({3, 1, 6}).SerializeAsString()};
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

TEST(TensorStreamTest, SeveralChunksAreWhatTheGeneratedParserReads) {
  const v1::PushRequest request = PiecesRequest({3, 1, 6});
  const std::vector<v1::TensorChunk> chunks(request.pieces().begin(), request.pieces().end());
  const std::string wire = EncodeChunkHeader(chunks, 40) + request.payload();
  v1::PushRequest as_push;
  ASSERT_TRUE(as_push.ParseFromString(wire));
  EXPECT_EQ(as_push.SerializeAsString(), request.SerializeAsString());
  v1::PullResponse as_pull;
  ASSERT_TRUE(as_pull.ParseFromString(wire));
  EXPECT_EQ(as_pull.pieces_size(), 3);
  EXPECT_EQ(as_pull.payload(), request.payload());
}

TEST(TensorStreamTest, SplitsAPayloadIntoPiecesWhereTheyLie) {
  const v1::PushRequest request = PiecesRequest({3, 1, 6, 2000});
  const std::string wire = request.SerializeAsString();
  for (size_t cut : {size_t{1}, size_t{7}, size_t{4096}, wire.size()}) {
    const SliceVector slices = CutEvery(wire, cut);
    const absl::StatusOr<DecodedPush> decoded = DecodePush(slices);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    absl::StatusOr<ChunkViews> split = SplitPayload(*decoded);
    ASSERT_TRUE(split.ok()) << split.status();
    const ChunkViews views = *std::move(split);
    ASSERT_EQ(views.chunks.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(views.chunks[i].chunk->parameter_id(), 10u + i);
      EXPECT_TRUE(VerifyChecksum(*views.chunks[i].chunk, views.chunks[i].payload).ok());
    }
    const char* last = reinterpret_cast<const char*>(views.chunks[3].payload.back().data());
    EXPECT_TRUE(last >= wire.data() && last < wire.data() + wire.size());
  }
}

TEST(TensorStreamTest, SplitsWhatIsNoPieceOrOneChunk) {
  EXPECT_EQ(SplitError(v1::PushRequest()), "");
  EXPECT_EQ(SplitError(ChunkRequest(40)), "");
}

TEST(TensorStreamTest, RefusesPiecesThatAreNotWhatThePayloadIsMadeOf) {
  v1::PushRequest request = PiecesRequest({3, 1});
  request.mutable_chunk();
  EXPECT_EQ(SplitError(request), "pieces has 2 entries beside a chunk, expecting none");
  EXPECT_EQ(SplitError(PiecesRequest({3})), "pieces has 1 entries, expecting 2 .. 1024");
  EXPECT_EQ(SplitError(PiecesRequest(std::vector<size_t>(1024, 1))), "");
  request = PiecesRequest({3, 1});
  request.mutable_pieces(1)->set_dtype(static_cast<v1::DType>(9));
  EXPECT_EQ(SplitError(request),
            "pieces[1] of parameter 11: dtype is 9, expecting 1 (fp32), 2 "
            "(bf16) or 3 (fp16)");
  request = PiecesRequest({3, 1});
  request.mutable_pieces(0)->set_num_elements(0);
  EXPECT_EQ(SplitError(request),
            "pieces[0] of parameter 10: num_elements is 0, expecting 1 .. 262144");
  request.mutable_pieces(0)->set_num_elements(uint64_t{1} << 62);
  EXPECT_EQ(SplitError(request),
            "pieces[0] of parameter 10: num_elements is 4611686018427387904, "
            "expecting 1 .. 262144");
  request.mutable_pieces(0)->set_num_elements(4);
  EXPECT_EQ(SplitError(request),
            "pieces[1] of parameter 11: 4 bytes, the payload has 0 behind the "
            "pieces before it");
  request.mutable_pieces(0)->set_num_elements(2);
  EXPECT_EQ(SplitError(request), "payload has 16 bytes, its 2 pieces have 12");
  EXPECT_EQ(SplitError(PiecesRequest({1 << 17, 1 << 17, 1}), 1 << 16),
            "payload has 1048580 bytes, expecting at most 1048576");
}

// Each would cost many times the memory of its bytes.
TEST(TensorStreamTest, RefusesMorePiecesThanThereMayBeBeforeItParsesThem) {
  const std::string in_place = PiecesRequest(std::vector<size_t>(1025, 1)).SerializeAsString();
  // A tag of two bytes, which the generated parser accepts.
  const std::string flat = std::string("\xa8\x00\x00", 3) + in_place;
  for (const std::string& wire : {in_place, flat}) {
    const absl::Status status = DecodePush({Bytes(wire)}).status();
    EXPECT_EQ(status.message(), "pieces has 1025 entries, expecting 2 .. 1024") << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

// Encodes `body` as the field of that tag, with a length of four bytes.
std::string Field(char tag, const std::string& body) {
  std::string field(1, tag);
  for (int shift = 0; shift < 28; shift += 7) {
    field.push_back(static_cast<char>((body.size() >> shift & 0x7f) | (shift < 21 ? 0x80 : 0)));
  }
  return field + body;
}

constexpr size_t kMaxHeaderBytes = size_t{128} << 10;

// An unknown field without a byte in it costs 16 times the memory of its two.
TEST(TensorStreamTest, RefusesALongHeaderBeforeItParsesIt) {
  std::string unknown;
  while (unknown.size() <= kMaxHeaderBytes) unknown += std::string("\x32\x00", 2);
  const std::string chunk = ChunkRequest(400).SerializeAsString();
  const std::string refusals[] = {
      unknown,
      // A message that is read in place, one that is not, and one with the largest payload.
      unknown + chunk,
      chunk + unknown,
      unknown + ChunkRequest(kMaxChunkBytes).SerializeAsString(),
      // The field is in open, in finish, and in one that is incomplete.
      Field('\x0a', unknown),
      Field('\x12', unknown),
      Field('\x12', unknown + "x").substr(0, unknown.size() + 5),
      Field('\x0a', unknown + "x").substr(0, unknown.size() + 5),
  };
  for (const std::string& wire : refusals) {
    const absl::Status status = DecodePush({Bytes(wire)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string said(status.message());
    EXPECT_EQ(said.find("message has 131"), 0u) << status;
    EXPECT_NE(said.find(" bytes beside payload and missing_parameters, expecting at most 131072"),
              std::string::npos)
        << status;
  }
}

TEST(TensorStreamTest, TakesAHeaderUpToTheLimitAndLongListsBesideIt) {
  v1::PushRequest header = ChunkRequest(400);
  const std::string chunk = header.SerializeAsString();
  header.clear_payload();
  const std::string most(kMaxHeaderBytes - header.ByteSizeLong() - Field('\x32', "").size(), '\0');
  ExpectReadsAsGeneratedParser(Field('\x32', most) + chunk, 4096);
  ExpectReadsAsGeneratedParser(chunk + Field('\x32', most), 4096);
  const std::string more = Field('\x32', most + "x") + chunk;
  EXPECT_FALSE(DecodePush({Bytes(more)}).ok());
  v1::PushRequest finish;
  for (uint32_t id = 0; id < 100000; ++id) finish.mutable_finish()->add_missing_parameters(id);
  ASSERT_GT(finish.ByteSizeLong(), 2 * kMaxHeaderBytes);
  ExpectReadsAsGeneratedParser(finish.SerializeAsString(), 4096);
  // A payload that is cut off is no header.
  const std::string cut = ChunkRequest(kMaxChunkBytes).SerializeAsString().substr(0, 500000);
  EXPECT_EQ(DecodePush({Bytes(cut)}).status().message(),
            "message of 500000 bytes is not a kaon.v1.PushRequest");
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
