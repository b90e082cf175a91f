#include "server/journal/log_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/journal/entry_codec.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

constexpr uint64_t kDirectory = 0x77;

// Segments made frame by frame, right or wrong.
class LogReaderTest : public testing::Test {
 protected:
  void Add(FrameType type, std::string& segment) {
    FrameHeader header;
    std::string payload;
    if (type == FrameType::kDecision) {
      const EncodedEntry entry = *EncodeEntry(decision_);
      header = entry.header;
      payload = entry.message;
    }
    header.type = type;
    header.directory = kDirectory;
    header.sequence = sequence_++;
    header.durable_sequence = durable_;
    header.chain = chain_;
    change_(header);
    change_ = [](FrameHeader&) {};
    const EncodedHeader encoded = EncodeFrameHeader(header);
    const absl::string_view bytes(encoded.data(), encoded.size());
    chain_ = HeaderCrc(bytes);
    absl::StrAppend(&segment, bytes, payload, FramePadding(header.payload_bytes));
  }

  void Write(uint64_t sequence, const std::string& segment) {
    WriteFile(directory_->path() + "/" + SegmentName(sequence), segment);
  }

  absl::StatusOr<LogEnd> Read(std::optional<DurableMark> mark = std::nullopt) {
    const LogReader::Visitor visit = [](const Entry&) { return absl::OkStatus(); };
    return LogReader(*directory_, kDirectory, start_, mark, 0, visit).Read();
  }

  // A start, two decisions, and an end if wanted.
  std::string Segment(bool closed) {
    std::string segment;
    Add(FrameType::kSegmentStart, segment);
    Add(FrameType::kDecision, segment);
    Add(FrameType::kDecision, segment);
    if (closed) Add(FrameType::kSegmentEnd, segment);
    return segment;
  }

  void ExpectDamage(absl::string_view what) {
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find(what), absl::string_view::npos) << status;
  }

  const std::unique_ptr<disk::PosixDirectory> directory_ = TemporaryDirectory();
  JournalStart start_;
  uint64_t sequence_ = 1;
  uint64_t durable_ = 0;
  uint32_t chain_ = 0;
  DecisionRecord decision_ = Decision(5);
  // Damages the header of the next frame.
  std::function<void(FrameHeader&)> change_ = [](FrameHeader&) {};
};

TEST_F(LogReaderTest, SaysWhereTheNextFrameGoes) {
  Write(1, Segment(true));
  Write(5, Segment(false));
  const absl::StatusOr<LogEnd> end = Read();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->segment, SegmentName(5));
  EXPECT_EQ(end->offset, 3 * kSectorBytes);
  EXPECT_EQ(end->next_sequence, 8u);
  EXPECT_EQ(end->chain, chain_);
  EXPECT_EQ(end->entries, 4u);
  ASSERT_EQ(end->kept.size(), 2u);
  EXPECT_EQ(end->kept[0].first_sequence, 1u);
  EXPECT_EQ(end->kept[0].bytes, 4 * kSectorBytes);
  EXPECT_EQ(end->kept[0].decided, 5u);
  EXPECT_EQ(end->kept[1].first_sequence, 5u);
  EXPECT_EQ(end->torn_bytes, 0u);
  EXPECT_TRUE(end->unfinished.empty());
}

// Segments that the file `start` says are gone may exist or not. The first segment that it names
// must exist.
TEST_F(LogReaderTest, BeginsWhereTheStartSays) {
  Write(1, Segment(true));
  start_ = {5, chain_, 6};
  Write(5, Segment(false));
  absl::StatusOr<LogEnd> end = Read();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->entries, 2u);
  EXPECT_EQ(end->removable, std::vector<std::string>{SegmentName(1)});
  ASSERT_TRUE(directory_->Remove(SegmentName(1)).ok());
  end = Read();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_TRUE(end->removable.empty());
  ++start_.chain;
  ExpectDamage("frame 5 after position 6: it follows a frame with header CRC");
  ASSERT_TRUE(directory_->Remove(SegmentName(5)).ok());
  ExpectDamage(SegmentName(5));
}

TEST_F(LogReaderTest, LeavesOutASegmentThatWasBegunWhenTheLastOneWasNotClosed) {
  const std::string first = Segment(false);
  Write(1, first);
  ++sequence_;
  std::string second;
  Add(FrameType::kSegmentStart, second);
  Write(5, second);
  for (const std::string& begun : {second, std::string(), std::string(512, '\0')}) {
    Write(5, begun);
    const absl::StatusOr<LogEnd> end = Read();
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->segment, SegmentName(1));
    EXPECT_EQ(end->unfinished, SegmentName(5));
  }
  Write(5, second + second);
  ExpectDamage(SegmentName(5) + " at offset 0, frame 4 after position 5: a segment of 1024 bytes");
  Write(5, second);
  Write(6, second);
  ExpectDamage(SegmentName(6));
}

TEST_F(LogReaderTest, RefusesFramesThatBelongElsewhere) {
  for (const auto& [what, change] :
       std::vector<std::pair<std::string, std::function<void(FrameHeader&)>>>{
           {"a frame of directory 78, expecting 77 as ",
            [](FrameHeader& h) { h.directory = 0x78; }},
           {"frame 2 after position 0: frame 3 lies there", [](FrameHeader& h) { h.sequence = 3; }},
           {"frame 1 lies there", [](FrameHeader& h) { h.sequence = 1; }},
           {"it follows a frame with header CRC 5", [](FrameHeader& h) { h.chain = 5; }},
           {"frame type 1 at this place",
            [](FrameHeader& h) { h.type = FrameType::kSegmentStart; }},
           {"frame type 7 at this place", [](FrameHeader& h) { h.type = FrameType::kDurable; }},
           {"promise of ", [](FrameHeader& h) { h.type = FrameType::kPromise; }}}) {
    sequence_ = 1;
    chain_ = 0;
    std::string segment;
    Add(FrameType::kSegmentStart, segment);
    change_ = change;
    Add(FrameType::kDecision, segment);
    Write(1, segment);
    ExpectDamage(what);
    ExpectDamage(SegmentName(1) + " at offset 512, frame 2 after position 0: ");
  }
}

// The message names the newest step that was decided before the damage, whatever entry follows it.
TEST_F(LogReaderTest, NamesTheStepBeforeTheDamage) {
  DecisionRecord step = Decision(40);
  step.record.mutable_plan()->mutable_step()->set_step(7);
  DecisionRecord group = Decision(41);
  group.record.mutable_plan()->mutable_group_change();
  DecisionRecord restore = Decision(42);
  restore.record.mutable_plan()->mutable_restore()->set_step(3);
  DecisionRecord rollback = Decision(43);
  rollback.record.mutable_plan()->mutable_rollback()->mutable_target()->set_step(2);
  std::string segment;
  Add(FrameType::kSegmentStart, segment);
  for (const auto& [decision, place] : std::vector<std::pair<DecisionRecord, std::string>>{
           {step, "frame 3 after step 7, position 40: "},
           {group, "frame 4 after step 7, position 41: "},
           {restore, "frame 5 after step 3, position 42: "},
           {rollback, "frame 6 after step 2, position 43: "}}) {
    decision_ = decision;
    Add(FrameType::kDecision, segment);
    Write(1, segment + "what is this" + std::string(512, 'x'));
    ExpectDamage(place);
  }
}

TEST_F(LogReaderTest, RefusesASegmentThatDoesNotStartAsOne) {
  std::string segment;
  Add(FrameType::kDecision, segment);
  Write(1, segment);
  ExpectDamage("frame type 5 at this place");
  Write(1, "");
  ExpectDamage("the segment is empty");
  Write(1, std::string(4096, '\0'));
  ExpectDamage("magic number 0");
}

TEST_F(LogReaderTest, RefusesAClosedSegmentThatGoesOnOrHasNoSuccessor) {
  const std::string closed = Segment(true);
  Write(1, closed);
  ExpectDamage(SegmentName(5) + " at offset 0, frame 5 after position 5: the segment is missing");
  Write(1, closed + std::string(512, '\0'));
  ExpectDamage("512 bytes behind the segment's end");
  Write(1, closed);
  Write(6, Segment(false));
  ExpectDamage("/" + SegmentName(5) + " is missing");
  Write(5, std::string(512, '\0'));
  ExpectDamage(SegmentName(5) + " at offset 0");
}

TEST_F(LogReaderTest, RefusesADirectoryWithoutSegments) { ExpectDamage(SegmentName(1)); }

TEST_F(LogReaderTest, TakesALaterSegmentsWordForWhatWasDurable) {
  std::string first = Segment(true);
  durable_ = 3;
  std::string second;
  Add(FrameType::kSegmentStart, second);
  Write(5, second);
  // The end of the first segment, frame 4, was perhaps not: the one before it was.
  Write(1, first.substr(0, 3 * 512));
  EXPECT_TRUE(Read().ok());
  Write(1, first.substr(0, 2 * 512));
  ExpectDamage("frame 3 after position 5: it is missing; everything up to 3 was durable");
}

TEST_F(LogReaderTest, TakesTheMarksWordForWhatWasDurable) {
  Write(1, Segment(false));
  EXPECT_TRUE(Read(DurableMark{3, chain_}).ok());
  const absl::Status missing = Read(DurableMark{4, 1}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(missing.message().find("frame 4 after position 5: it is missing"),
            absl::string_view::npos)
      << missing;
  const absl::Status other = Read(DurableMark{3, chain_ + 1}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(other.message().find("the durable one's was"), absl::string_view::npos) << other;
}

}  // namespace
}  // namespace kaon::journal
