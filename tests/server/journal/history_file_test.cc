#include "server/journal/history_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/journal/frame.h"
#include "tests/server/journal/hooked_directory.h"
#include "tests/server/journal/journal_files.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::journal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kDirectory = 0x77;
// Truncated up to position 7, with the file and as it was before there was one.
constexpr JournalStart kStart = {20, 1, 7, true};
constexpr JournalStart kOldStart = {20, 1, 7, false};

void Add(uint64_t from, uint64_t to, History& history) {
  for (uint64_t position = from; position <= to; ++position) {
    history.Add(Decision(position).record);
  }
}

absl::Status Write(disk::Directory& directory, uint64_t position, uint64_t from, uint64_t to) {
  History history;
  Add(from, to, history);
  return WriteHistory(directory, kDirectory, position, history);
}

class HistoryFileTest : public testing::Test {
 protected:
  std::vector<uint64_t> Read(const JournalStart& start) {
    History history;
    newest_ = ReadHistory(*directory_, kDirectory, start, &history);
    EXPECT_TRUE(newest_.ok()) << newest_.status();
    return PositionsIn(history);
  }
  void ExpectRefused(const JournalStart& start, uint64_t directory, const std::string& words) {
    // A caller without need of records gets the error, too.
    const absl::Status status = ReadHistory(*directory_, directory, start, nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr(words)));
  }

  const std::unique_ptr<disk::PosixDirectory> directory_ = TemporaryDirectory();
  const std::string path_ = directory_->path() + "/history";
  absl::StatusOr<uint64_t> newest_;
};

TEST_F(HistoryFileTest, HoldsNoRecordWithoutTheFile) {
  EXPECT_TRUE(Read({}).empty());
  EXPECT_EQ(*newest_, 0u);
}

TEST_F(HistoryFileTest, GivesBackRecordsUpToThePosition) {
  ASSERT_TRUE(Write(*directory_, 5, 1, 6).ok());
  ASSERT_TRUE(Write(*directory_, 7, 3, 9).ok());
  EXPECT_THAT(Read(kStart), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_EQ(*newest_, 7u);
  EXPECT_EQ(*directory_->List(), std::vector<std::string>{"history"});
  // All of them were dropped since.
  ASSERT_TRUE(Write(*directory_, 7, 8, 9).ok());
  EXPECT_TRUE(Read(kStart).empty());
  EXPECT_EQ(*newest_, 0u);
}

// The records are longer than one write, and never longer than the bound in memory.
TEST_F(HistoryFileTest, GivesBackLargeRecords) {
  History history;
  v1::StepRecord record = Decision(1).record;
  record.mutable_decision()->set_reason(std::string(kMaxHistoryBytes / 7, 'x'));
  for (uint64_t position = 1; position <= 9; ++position) {
    record.mutable_plan()->set_position(position);
    history.Add(record);
  }
  ASSERT_TRUE(WriteHistory(*directory_, kDirectory, 8, history).ok());
  EXPECT_LT(ReadFile(path_).size(), kMaxHistoryBytes);
  History read;
  const absl::StatusOr<uint64_t> newest = ReadHistory(*directory_, kDirectory, kStart, &read);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(*newest, 8u);
  const std::vector<v1::StepRecord> records = *read.Read(0, kMaxHistory);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].plan().position(), 4u);
  EXPECT_EQ(records[4].decision().reason(), record.decision().reason());
}

// The file lacks the records that a rollback discarded, and has the rollback.
TEST_F(HistoryFileTest, GivesBackWhatARollbackLeft) {
  History history;
  Add(1, 6, history);
  v1::StepRecord rollback;
  rollback.mutable_plan()->set_position(9);
  rollback.mutable_plan()->mutable_rollback()->mutable_target()->set_position(4);
  history.Add(rollback);
  History read;
  // Before the rollback was written, and after it.
  ASSERT_TRUE(WriteHistory(*directory_, kDirectory, 7, history).ok());
  EXPECT_THAT(Read(kStart), ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(WriteHistory(*directory_, kDirectory, 9, history).ok());
  const absl::StatusOr<uint64_t> newest = ReadHistory(*directory_, kDirectory, kStart, &read);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(*newest, 9u);
  const std::vector<v1::StepRecord> records = *read.Read(0, kMaxHistory);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[3].plan().position(), 4u);
  EXPECT_TRUE(records[4].plan().has_rollback());
}

TEST_F(HistoryFileTest, RefusesOneThatIsMissingOrOlderThanTheStart) {
  ExpectRefused(kStart, kDirectory,
                " is missing: start says that it holds records of entries up to position 7");
  ASSERT_TRUE(Write(*directory_, 6, 1, 9).ok());
  ExpectRefused(kStart, kDirectory,
                " at offset 0: it holds records of entries up to position 6, start says up to 7");
  ASSERT_TRUE(Write(*directory_, 8, 1, 9).ok());
  EXPECT_EQ(Read(kStart).size(), 8u);
}

// An old start does not name the history, so the file may be missing. A program that does not know
// the file may also have left one behind.
TEST_F(HistoryFileTest, TakesDirectoriesOfBeforeAndWhatWasLeftInThem) {
  EXPECT_TRUE(Read(kOldStart).empty());
  ASSERT_TRUE(Write(*directory_, 6, 1, 9).ok());
  EXPECT_TRUE(Read(kOldStart).empty());
  EXPECT_EQ(*newest_, 0u);
  // A crash preceded the first start file that records it.
  ASSERT_TRUE(Write(*directory_, 7, 1, 9).ok());
  EXPECT_EQ(Read(kOldStart).size(), 7u);
}

TEST_F(HistoryFileTest, RefusesDamageNamingFileAndOffset) {
  ASSERT_TRUE(Write(*directory_, 7, 5, 7).ok());
  ExpectRefused(
      kStart, 0x78,
      " at offset 0: frame 1 of directory 77, type 9 and chain 0, expecting 1, 78, 9 and 0");
  const std::string contents = ReadFile(path_);
  ASSERT_EQ(contents.size(), 4 * kSectorBytes);
  for (size_t bit = 0; bit < contents.size() * 8; ++bit) {
    std::string flipped = contents;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteFile(path_, flipped);
    ExpectRefused(kStart, kDirectory, absl::StrCat(" at offset ", bit / 8 / 512 * 512, ": "));
  }
  for (size_t size = 0; size < contents.size(); ++size) {
    WriteFile(path_, contents.substr(0, size));
    ExpectRefused(kStart, kDirectory, absl::StrCat(" at offset ", size / 512 * 512, ": "));
  }
  WriteFile(path_, contents + std::string(1, '\0'));
  ExpectRefused(kStart, kDirectory, " at offset 2048: 1 bytes behind the last of 4 frames");
  // A block of the same file, and one of an older file, at its place.
  WriteFile(path_, contents.substr(0, 1024) + contents.substr(512, 512) + contents.substr(1536));
  ExpectRefused(kStart, kDirectory, " at offset 1024: frame 2 of directory 77, type 5");
  ASSERT_TRUE(Write(*directory_, 6, 4, 7).ok());
  const std::string older = ReadFile(path_);
  WriteFile(path_, contents.substr(0, 1024) + older.substr(1024, 512) + contents.substr(1536));
  ExpectRefused(kStart, kDirectory, " at offset 1024: frame 3 of directory 77, type 5 and chain ");
}

// All checksums of these files are right.
TEST_F(HistoryFileTest, RefusesRecordsThatCannotBe) {
  const auto frames = [](uint64_t last, std::vector<uint64_t> positions) {
    std::string bytes;
    FrameHeader header;
    header.directory = kDirectory;
    header.type = FrameType::kHistory;
    header.durable_sequence = last;
    header.position = 7;
    const auto add = [&](const std::string& payload) {
      ++header.sequence;
      DescribePayload(payload, header);
      const EncodedHeader encoded = EncodeFrameHeader(header);
      header.chain = HeaderCrc(absl::string_view(encoded.data(), encoded.size()));
      absl::StrAppend(&bytes, absl::string_view(encoded.data(), encoded.size()), payload,
                      FramePadding(header.payload_bytes));
    };
    add("");
    header.type = FrameType::kDecision;
    for (const uint64_t position : positions) {
      add(position == 0 ? "?" : Decision(position).record.SerializeAsString());
    }
    return bytes;
  };
  WriteFile(path_, frames(3, {6, 7}));
  EXPECT_THAT(Read(kStart), ElementsAre(6, 7));
  WriteFile(path_, frames(3, {7, 7}));
  ExpectRefused(kStart, kDirectory, " at offset 1024: the record of position 7 follows that of 7");
  WriteFile(path_, frames(3, {7, 8}));
  ExpectRefused(kStart, kDirectory, " at offset 1024: the record of position 8 follows that of 7");
  WriteFile(path_, frames(3, {6, 0}));
  ExpectRefused(kStart, kDirectory, " at offset 1024: decision of 1 bytes is no message");
  WriteFile(path_, frames(4, {6, 7}));
  ExpectRefused(kStart, kDirectory, " at offset 1536: frame 4 is missing");
  WriteFile(path_, frames(2, {6, 7}));
  ExpectRefused(kStart, kDirectory, " at offset 1024: 512 bytes behind the last of 2 frames");
}

// P18: the unfinished file does not hold the missing room.
TEST_F(HistoryFileTest, LeavesTheOneBeforeOnAFullDisk) {
  HookedDirectory hooked(*directory_);
  ASSERT_TRUE(Write(hooked, 7, 1, 7).ok());
  for (const std::string refused : {"create", "write", "sync", "rename"}) {
    hooked.set_hook([&](absl::string_view operation, const std::string&) {
      return operation == refused ? absl::ResourceExhaustedError("full") : absl::OkStatus();
    });
    EXPECT_EQ(Write(hooked, 9, 1, 9).code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_EQ(Read(kStart).size(), 7u) << refused;
    EXPECT_EQ(*directory_->List(), std::vector<std::string>{"history"});
  }
  // After an error here, a crash may leave either file.
  hooked.set_hook([&](absl::string_view operation, const std::string&) {
    return operation == "sync directory" ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  });
  EXPECT_EQ(Write(hooked, 9, 1, 9).code(), absl::StatusCode::kDataLoss);
  hooked.set_hook(nullptr);
  ASSERT_TRUE(Write(hooked, 9, 1, 9).ok());
  EXPECT_EQ(Read(kStart).size(), 9u);
}

// Wherever the power is cut, and wherever the disk is full: this one or the one before.
TEST(HistoryFileOnASimulatedDiskTest, IsOneOfTheTwoAfterAnyFault) {
  int newer = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    simulation::SimulatedDirectory directory("/disk", seed);
    ASSERT_TRUE(Write(directory, 7, 1, 7).ok());
    if (seed % 3 == 0) {
      directory.SetFreeBytes(seed % 5000);
    } else {
      directory.FailAfter(seed % 9);
    }
    const absl::Status status = Write(directory, 9, 2, 9);
    directory.SetHealthy();
    directory.SetUnbounded();
    directory.CutPower();
    History history;
    const absl::StatusOr<uint64_t> newest = ReadHistory(directory, kDirectory, kStart, &history);
    ASSERT_TRUE(newest.ok()) << "seed " << seed << ": " << newest.status();
    EXPECT_TRUE(*newest == 9 || !status.ok()) << seed;
    EXPECT_TRUE(*newest == 7 || !absl::IsResourceExhausted(status)) << seed;
    const std::vector<uint64_t> positions = PositionsIn(history);
    EXPECT_EQ(positions.front(), *newest == 9 ? 2u : 1u) << seed;
    EXPECT_EQ(positions.back(), *newest) << seed;
    newer += *newest == 9;
  }
  EXPECT_GT(newer, 100);
  EXPECT_LT(newer, 900);
}

}  // namespace
}  // namespace kaon::journal
