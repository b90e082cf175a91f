#include "client/transport/pull_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "proto/crc32c.h"

namespace kaon::client {
namespace {

using ::testing::HasSubstr;

class PullAssemblerTest : public ::testing::Test {
 protected:
  PullAssemblerTest() : assembler_(Request(), Targets()) {}

  static v1::PullRequest Request() {
    v1::PullRequest request;
    request.add_parameter_ids(4);
    request.add_parameter_ids(2);
    request.set_dtype(v1::DTYPE_FLOAT32);
    return request;
  }

  std::vector<MutableTensorView> Targets() {
    return {{first_.data(), first_.size(), DType::kFloat32},
            {second_.data(), second_.size(), DType::kFloat32}};
  }

  absl::Status Accept(uint32_t parameter, uint64_t offset, const std::vector<float>& values,
                      uint32_t damage = 0) {
    v1::TensorChunk chunk;
    chunk.set_parameter_id(parameter);
    chunk.set_offset(offset);
    chunk.set_num_elements(values.size());
    chunk.set_dtype(v1::DTYPE_FLOAT32);
    chunk.set_crc32c(proto::Crc32c(values.data(), values.size() * 4) ^ damage);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    // The payload arrives in slices that are cut anywhere.
    const absl::Span<const std::byte> runs[] = {
        absl::MakeConstSpan(bytes, 3), absl::MakeConstSpan(bytes + 3, values.size() * 4 - 3)};
    return assembler_.Accept({{&chunk, runs}});
  }

  std::vector<float> first_ = std::vector<float>(3, -1);
  std::vector<float> second_ = std::vector<float>(1, -1);
  PullAssembler assembler_;
};

TEST_F(PullAssemblerTest, WritesChunksWhereTheyBelong) {
  ASSERT_TRUE(Accept(4, 0, {1, 2}).ok());
  ASSERT_TRUE(Accept(4, 2, {3}).ok());
  ASSERT_TRUE(Accept(2, 0, {4}).ok());
  EXPECT_TRUE(assembler_.CheckComplete().ok());
  EXPECT_EQ(first_, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(second_, std::vector<float>{4});
}

TEST_F(PullAssemblerTest, RefusesAChecksumThatDoesNotMatchAndWritesNothing) {
  const absl::Status status = Accept(4, 0, {1, 2}, /*damage=*/1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(first_[0], -1);
  // It has not arrived.
  EXPECT_TRUE(Accept(4, 0, {1, 2}).ok());
}

// The assembler counts values that overflow a 16-bit type ([M6]), for any size of the pieces.
TEST(PullAssemblerInfiniteTest, CountsWhatA16BitTypeCannotHoldHoweverItIsCut) {
  for (const kernels::DType dtype : {kernels::DType::kFloat16, kernels::DType::kBFloat16}) {
    const std::vector<float> masters = {70000, -3.4e38f, 1, 3.4e38f};
    std::vector<std::byte> bytes(masters.size() * 2);
    kernels::FromFloat(dtype, masters, bytes.data());
    v1::PullRequest request;
    request.add_parameter_ids(4);
    request.set_dtype(static_cast<v1::DType>(dtype));
    v1::TensorChunk chunk;
    chunk.set_parameter_id(4);
    chunk.set_num_elements(masters.size());
    chunk.set_dtype(request.dtype());
    chunk.set_crc32c(proto::Crc32c(bytes.data(), bytes.size()));
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      const absl::Span<const std::byte> all(bytes);
      const absl::Span<const std::byte> runs[] = {all.first(cut), all.subspan(cut)};
      std::vector<uint16_t> target(masters.size());
      uint64_t infinite = 0;
      PullAssembler assembler(request, {{target.data(), target.size(), static_cast<DType>(dtype)}},
                              [&infinite](uint32_t parameter_id, uint64_t elements) {
                                EXPECT_EQ(parameter_id, 4u);
                                infinite += elements;
                              });
      ASSERT_TRUE(assembler.Accept({{&chunk, runs}}).ok());
      EXPECT_EQ(infinite, dtype == kernels::DType::kFloat16 ? 3u : 2u) << cut;
    }
  }
}

TEST_F(PullAssemblerTest, TakesTheChunksOfAMessageUntilOneIsWrong) {
  const float values[] = {1, 2, 3, 4};
  v1::PushRequest message;
  for (uint32_t id : {4, 2}) {
    v1::TensorChunk* piece = message.add_pieces();
    piece->set_parameter_id(id);
    piece->set_num_elements(id == 4 ? 3 : 1);
    piece->set_dtype(v1::DTYPE_FLOAT32);
    piece->set_crc32c(proto::Crc32c(values + (id == 4 ? 0 : 3), id == 4 ? 12 : 4));
  }
  const std::string wire = message.SerializeAsString() + "\x7a\x10" +
                           std::string(reinterpret_cast<const char*>(values), sizeof(values));
  const absl::Span<const std::byte> slice(reinterpret_cast<const std::byte*>(wire.data()),
                                          wire.size());
  absl::StatusOr<proto::DecodedPush> decoded = proto::DecodePush({slice});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(assembler_.Accept(proto::SplitPayload(*decoded)->chunks).ok());
  EXPECT_TRUE(assembler_.CheckComplete().ok());
  EXPECT_EQ(second_, std::vector<float>{4});

  PullAssembler other(Request(), Targets());
  second_[0] = -1;
  decoded->message.mutable_pieces(1)->set_crc32c(0);
  const absl::Status status = other.Accept(proto::SplitPayload(*decoded)->chunks);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 2"));
  EXPECT_EQ(second_, std::vector<float>{-1});
}

TEST_F(PullAssemblerTest, RefusesAMessageWithoutChunks) {
  EXPECT_EQ(assembler_.Accept({}).code(), absl::StatusCode::kInternal);
}

TEST_F(PullAssemblerTest, RefusesAChunkOutOfTurn) {
  const absl::Status status = Accept(2, 0, {4});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 2, offset 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("expecting parameter 4"));
}

TEST_F(PullAssemblerTest, RefusesAGap) {
  EXPECT_EQ(Accept(4, 1, {1, 2}).code(), absl::StatusCode::kInternal);
}

TEST_F(PullAssemblerTest, RefusesToWriteBeyondItsTarget) {
  EXPECT_EQ(Accept(4, 0, {1, 2, 3, 4}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(first_[0], -1);
}

TEST_F(PullAssemblerTest, RefusesMoreThanWasAskedFor) {
  ASSERT_TRUE(Accept(4, 0, {1, 2, 3}).ok());
  ASSERT_TRUE(Accept(2, 0, {4}).ok());
  EXPECT_EQ(Accept(2, 1, {5}).code(), absl::StatusCode::kInternal);
}

TEST_F(PullAssemblerTest, NamesWhatIsMissingAtTheEnd) {
  ASSERT_TRUE(Accept(4, 0, {1, 2}).ok());
  const absl::Status status = assembler_.CheckComplete();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 of 3 elements of parameter 4"));
}

}  // namespace
}  // namespace kaon::client
