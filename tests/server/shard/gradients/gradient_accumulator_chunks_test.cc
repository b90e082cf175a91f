// Messages of several chunks: the result is as if each chunk came alone, in the message's order.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

struct Piece {
  uint32_t parameter = 0;
  uint64_t offset = 0;
  std::vector<float> values;
};

class GradientAccumulatorChunksTest : public AccumulatorFixture {
 protected:
  GradientAccumulatorChunksTest() { Begin(); }

  // `spoil` may change the message.
  absl::Status PushAtOnce(
      const PushingWorker& worker, const std::vector<Piece>& pieces,
      const std::function<void(std::vector<v1::TensorChunk>&,
                               std::vector<std::vector<std::byte>>&)>& spoil = nullptr) {
    std::vector<v1::TensorChunk> headers;
    std::vector<std::vector<std::byte>> payloads;
    for (const Piece& piece : pieces) {
      payloads.push_back(Encode(piece.values));
      headers.push_back(Header(piece.parameter, piece.offset, payloads.back()));
    }
    if (spoil != nullptr) spoil(headers, payloads);
    const std::vector<absl::Span<const std::byte>> runs(payloads.begin(), payloads.end());
    std::vector<proto::ChunkView> views;
    for (size_t i = 0; i < headers.size(); ++i) {
      views.push_back({&headers[i], absl::MakeConstSpan(runs).subspan(i, 1)});
    }
    return accumulator_->AddChunks(worker.stream, views);
  }
};

const std::vector<Piece> kBoth = {{kW, 0, {1, 2, 3, 4, 5, 6}}, {kB, 0, {1, 2, 3, 4}}};

TEST_F(GradientAccumulatorChunksTest, FoldsAllAndCreditsThemAtOnce) {
  std::vector<uint64_t> credits;
  PushCallbacks callbacks;
  callbacks.on_credit = [&credits](uint64_t bytes) { credits.push_back(bytes); };
  callbacks.on_ended = [](const absl::Status&) {};
  PushingWorker worker;
  worker.stream = accumulator_->Open(OpenRequest(0), callbacks)->stream;
  ASSERT_TRUE(PushAtOnce(worker, kBoth).ok());
  EXPECT_EQ(credits, std::vector<uint64_t>{40});
  ASSERT_TRUE(Finish(worker).ok());
  ASSERT_TRUE(Finish(Open(1), {kW, kB}).ok());
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  EXPECT_EQ(Gradient(kW), (std::vector<float>{0.5, 1, 1.5, 2, 2.5, 3}));
  EXPECT_EQ(Gradient(kB), (std::vector<float>{0.5, 1, 1.5, 2}));
}

TEST_F(GradientAccumulatorChunksTest, AnnouncesEachParameterThatIsSettled) {
  ASSERT_TRUE(PushAtOnce(Open(0), kBoth).ok());
  EXPECT_TRUE(folded_parameters_.empty());
  ASSERT_TRUE(PushAtOnce(Open(1), kBoth).ok());
  EXPECT_EQ(folded_parameters_, (std::vector<std::pair<uint64_t, uint32_t>>{{1, kW}, {1, kB}}));
}

TEST_F(GradientAccumulatorChunksTest, TakesPiecesOfOneParameterInTheirOrder) {
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(PushAtOnce(worker, {{kW, 0, {1, 2}}, {kW, 2, {3, 4, 5, 6}}}).ok());
  EXPECT_EQ(*worker.credit, 24u);
}

TEST_F(GradientAccumulatorChunksTest, AddsNothingWhenOneChecksumIsWrong) {
  const PushingWorker worker = Open(0);
  const absl::Status status =
      PushAtOnce(worker, kBoth, [](auto&, auto& payloads) { payloads[1][2] ^= std::byte{4}; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("parameter 1 micro-batch 0"), absl::string_view::npos) << status;
  const PushingWorker next = Open(0);
  EXPECT_EQ(next.opened.received_size(), 0);
  EXPECT_EQ(next.opened.credit_bytes(), accumulator_->staging_window_bytes());
}

TEST_F(GradientAccumulatorChunksTest, AddsNothingWhenOneDoesNotFitItsParameter) {
  const PushingWorker worker = Open(0);
  ExpectInvalid(PushAtOnce(worker, kBoth, [](auto& headers, auto&) { headers[1].set_offset(1); }),
                "parameter b: offset 1 + 4 elements pushed, it has 4");
  ExpectInvalid(
      PushAtOnce(worker, kBoth, [](auto& headers, auto&) { headers[1].set_parameter_id(kFrozen); }),
      "parameter f is frozen");
  EXPECT_EQ(Open(0).opened.received_size(), 0);
}

// Chunks before the refused one count, and the worker gets their credit.
TEST_F(GradientAccumulatorChunksTest, KeepsWhatCameBeforeTheOneThatIsRefused) {
  const PushingWorker worker = Open(0);
  ExpectInvalid(PushAtOnce(worker, {{kW, 0, {1, 2, 3, 4, 5, 6}}, {kB, 2, {3, 4}}, {kB, 0, {9}}}),
                "parameter b of rank 0 micro-batch 0: gap: elements from 2 pushed, expecting from");
  EXPECT_EQ(*worker.credit, 24u);
  const PushingWorker next = Open(0);
  ASSERT_EQ(next.opened.received_size(), 1);
  EXPECT_EQ(next.opened.received(0).parameter_id(), kW);
  EXPECT_EQ(next.opened.credit_bytes(), accumulator_->staging_window_bytes());
}

TEST_F(GradientAccumulatorChunksTest, DropsRepetitionsAndRefusesOtherBytes) {
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(Push(worker, kW, 0, kBoth[0].values).ok());
  ASSERT_TRUE(PushAtOnce(worker, kBoth).ok());
  EXPECT_EQ(*worker.credit, 24u + 40u);
  const absl::Status status = PushAtOnce(worker, {kBoth[0], {kB, 0, {1, 2, 3, 5}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("parameter b of rank 0"), absl::string_view::npos) << status;
}

// The last of them has no room left by those before it.
TEST_F(GradientAccumulatorChunksTest, CountsEachPieceThatWaitsAgainstTheWindow) {
  const PushingWorker later = Open(1);
  ASSERT_TRUE(PushAtOnce(later, kBoth).ok());
  EXPECT_EQ(*later.credit, 0u);
  EXPECT_EQ(Open(1).opened.credit_bytes(), accumulator_->staging_window_bytes() - 40);
  ASSERT_TRUE(PushAtOnce(Open(0), kBoth).ok());
  EXPECT_EQ(Open(1).opened.credit_bytes(), accumulator_->staging_window_bytes());
}

TEST_F(GradientAccumulatorChunksTest, TakesNothingOnceTheStreamIsOver) {
  const PushingWorker worker = Open(0);
  Open(0);
  EXPECT_TRUE(absl::IsAborted(PushAtOnce(worker, kBoth)));
}

}  // namespace
}  // namespace kaon::shard
