#include "server/journal/entry_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

std::string RoundTrip(const Entry& entry) {
  const absl::StatusOr<EncodedEntry> encoded = EncodeEntry(entry);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  // Moved as the log moves it: short payloads must move along.
  const EncodedEntry moved = *encoded;
  const absl::StatusOr<Entry> decoded = DecodeEntry({moved.header, moved.payload()});
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return decoded.ok() ? Describe(*decoded) : "";
}

TEST(EntryCodecTest, GivesBackEveryKindOfEntry) {
  const std::vector<float> values = {1.5f, -0.0f, 3e-40f, 7};
  for (const Entry& entry : {Entry(Promise(7)), Entry(Prepare(3, 12)), Entry(Decision(3)),
                             Entry(Slice(3, 12, 4, values)), Entry(Slice(3, 12, 4, {}))}) {
    EXPECT_EQ(RoundTrip(entry), Describe(entry));
  }
}

TEST(EntryCodecTest, SaysInTheHeaderWhatTheEntryIsAbout) {
  const FrameHeader prepare = EncodeEntry(Prepare(3, 12))->header;
  EXPECT_EQ(prepare.type, FrameType::kPrepare);
  EXPECT_EQ(prepare.timeline, 1u);
  EXPECT_EQ(prepare.position, 3u);
  EXPECT_EQ(prepare.generation, 12u);
  const FrameHeader decision = EncodeEntry(Decision(4))->header;
  EXPECT_EQ(decision.type, FrameType::kDecision);
  EXPECT_EQ(decision.position, 4u);
  const std::vector<float> values(5);
  const FrameHeader gradient = EncodeEntry(Slice(6, 2, 8, values))->header;
  EXPECT_EQ(gradient.position, 6u);
  EXPECT_EQ(gradient.generation, 2u);
  EXPECT_EQ(gradient.parameter_id, 8u);
  EXPECT_EQ(gradient.payload_bytes, 20u);
}

TEST(EntryCodecTest, AGradientThatWasSummedUpBeforeIsTheSame) {
  std::vector<float> values(1000, 2);
  std::fill(values.begin() + 300, values.begin() + 700, 0.0f);
  const Entry slice = Slice(6, 2, 8, values);
  const FrameHeader described = DescribeGradient(std::get<GradientSlice>(slice));
  EXPECT_GT(described.zero_sectors, 0u);
  EXPECT_EQ(EncodeFrameHeader(EncodeEntry(slice, &described)->header),
            EncodeFrameHeader(EncodeEntry(slice)->header));
}

TEST(EntryCodecTest, BorrowsTheValuesOfAGradient) {
  const std::vector<float> values(1000, 2);
  const absl::StatusOr<EncodedEntry> encoded = EncodeEntry(Slice(1, 1, 0, values));
  EXPECT_EQ(static_cast<const void*>(encoded->payload().data()), values.data());
}

// Plans are alike iff their bytes are equal (protocol.md 2.1 rule 2), so a voted plan is read back
// byte for byte.
TEST(EntryCodecTest, KeepsThePlanOfAVoteByteForByte) {
  PrepareRecord prepare = Prepare(3, 1);
  // An unknown field.
  *prepare.prepared.mutable_plan() += "\xfa\x07\x01x";
  const EncodedEntry encoded = *EncodeEntry(prepare);
  const Entry decoded = *DecodeEntry({encoded.header, encoded.payload()});
  EXPECT_EQ(std::get<PrepareRecord>(decoded).prepared.plan(), prepare.prepared.plan());
}

TEST(EntryCodecTest, RefusesWhatDoesNotFitIntoAFrame) {
  const std::vector<float> values(kMaxGradientBytes / 4 + 1);
  const absl::Status status = EncodeEntry(Slice(1, 1, 0, values)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "journal entry of 1048580 bytes, at most 1048576");
}

TEST(EntryCodecTest, RefusesPayloadsThatAreNoEntry) {
  FrameHeader header;
  header.type = FrameType::kPromise;
  EXPECT_EQ(DecodeEntry({header, "short"}).status().message(), "promise of 5 bytes, expecting 32");
  header.type = FrameType::kPrepare;
  EXPECT_EQ(DecodeEntry({header, "\xff\xff"}).status().message(),
            "PREPARE of 2 bytes is no message of its kind");
  header.type = FrameType::kDecision;
  EXPECT_EQ(DecodeEntry({header, "\xff\xff"}).status().code(), absl::StatusCode::kDataLoss);
  header.type = FrameType::kSegmentEnd;
  EXPECT_EQ(DecodeEntry({header, ""}).status().message(), "frame type 2 holds no entry");
}

}  // namespace
}  // namespace kaon::journal
