// The records that a journal shows once it was truncated and its process started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/journal/disk_journal.h"
#include "server/journal/segment_reader.h"
#include "tests/server/journal/hooked_directory.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

using ::testing::HasSubstr;

std::vector<uint64_t> PositionsFrom(uint64_t first, uint64_t last) {
  std::vector<uint64_t> positions(last - first + 1);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

class DiskJournalHistoryTest : public testing::Test {
 protected:
  DiskJournalHistoryTest() {
    options_.log.id_if_created = {1, 2};
    options_.log.segment_bytes = 3000;
    options_.retry_delay = absl::Hours(1);
    options_.on_failed = [this](const absl::Status&) { ++failures_; };
    UseEmptyDirectory();
  }

  void UseEmptyDirectory() {
    journal_.reset();
    posix_ = TemporaryDirectory();
    directory_ = std::make_unique<HookedDirectory>(*posix_);
    options_.log.snapshot_position = 0;
  }
  absl::Status TryOpen() {
    entries_ = 0;
    journal_.reset();
    auto journal = DiskJournal::Open(*directory_, options_, [this](const Entry&) {
      ++entries_;
      return absl::OkStatus();
    });
    if (journal.ok()) journal_ = std::move(*journal);
    return journal.status();
  }
  void Open() {
    const absl::Status status = TryOpen();
    ASSERT_TRUE(status.ok()) << status;
  }
  void AppendSteps(uint64_t first, uint64_t last) {
    for (uint64_t position = first; position <= last; ++position) {
      journal_->AppendGradient(Slice(position, position, 0, values_));
      journal_->Append(Decision(position), [] {});
    }
  }
  // Makes a snapshot of the position, which replaces the entries before it. Then ends the process
  // and starts it from that snapshot.
  void TruncateAndReopen(uint64_t position) {
    journal_->Truncate(position);
    journal_->Stop();
    directory_->set_hook(nullptr);
    options_.log.snapshot_position = position;
    Open();
  }
  // Nine steps that are durable, and were truncated once.
  void OpenTruncated() {
    Open();
    AppendSteps(1, 9);
    journal_->Stop();
    Open();
    TruncateAndReopen(4);
  }
  std::vector<uint64_t> Shown() {
    std::vector<uint64_t> positions;
    const std::vector<v1::StepRecord> records = journal_->History(0, 5000).value();
    for (const v1::StepRecord& record : records) {
      positions.push_back(record.plan().position());
    }
    return positions;
  }

  const std::vector<float> values_ = std::vector<float>(300, 1.25f);
  std::unique_ptr<disk::PosixDirectory> posix_;
  std::unique_ptr<HookedDirectory> directory_;
  DiskJournal::Options options_;
  int entries_ = 0;
  int failures_ = 0;
  std::unique_ptr<DiskJournal> journal_;
};

// protocol.md section 2: "shards keep the last 1,000", though snapshots stand for most of them.
TEST_F(DiskJournalHistoryTest, ShowsTheLastThousand) {
  options_.log.segment_bytes = 64 << 10;
  Open();
  for (uint64_t position = 1; position <= 2500; ++position) {
    journal_->Append(Decision(position), [] {});
  }
  journal_->Stop();
  Open();
  for (const uint64_t truncated : {1000, 1600, 2400}) {
    TruncateAndReopen(truncated);
    EXPECT_LE(ReadFile(posix_->path() + "/history").size(), (1 + kMaxHistory) * kSectorBytes);
    EXPECT_LT(entries_, 2700 - truncated);
    EXPECT_EQ(Shown(), PositionsFrom(1501, 2500));
  }
  journal_->Append(Decision(2501), [] {});
  EXPECT_EQ(Shown(), PositionsFrom(1502, 2501));
}

// A coordinator that takes over finds the result of a retried request by its id.
TEST_F(DiskJournalHistoryTest, ShowsTheRequestOfAnEntry) {
  Open();
  DecisionRecord change = Decision(1);
  change.record.mutable_plan()->mutable_group_change()->set_request_id(0x77);
  journal_->Append(change, [] {});
  AppendSteps(2, 9);
  journal_->Stop();
  Open();
  const int all = entries_;
  TruncateAndReopen(7);
  EXPECT_LT(entries_, all / 2);
  // The second truncation finds it only in the file of the first one.
  AppendSteps(10, 14);
  journal_->Stop();
  Open();
  TruncateAndReopen(12);
  const auto records = journal_->History(1, 1);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(Describe(DecisionRecord{records->front()}), Describe(change));
  EXPECT_EQ(Shown(), PositionsFrom(1, 14));
}

// Records that a rollback discarded are gone, even if the journal still has them (protocol.md
// section 3).
TEST_F(DiskJournalHistoryTest, ShowsNothingThatWasTakenBack) {
  OpenTruncated();
  DecisionRecord rollback = Decision(12);
  rollback.record.mutable_plan()->mutable_rollback()->mutable_target()->set_position(6);
  journal_->Append(rollback, [] {});
  journal_->Append(Decision(13), [] {});
  std::vector<uint64_t> expected = PositionsFrom(1, 6);
  expected.insert(expected.end(), {12, 13});
  journal_->Stop();
  // The file is of before the rollback, and then of the rollback.
  for (const uint64_t truncated : {6, 12}) {
    Open();
    EXPECT_EQ(Shown(), expected);
    TruncateAndReopen(truncated);
    EXPECT_EQ(Shown(), expected);
  }
}

// Entries that are queued after the truncation may never reach the disk.
TEST_F(DiskJournalHistoryTest, KeepsNoRecordThatIsNotWritten) {
  OpenTruncated();
  options_.log.segment_bytes = 1 << 20;
  Open();
  std::promise<void> held;
  std::promise<void> released;
  int writes = 0;
  directory_->set_hook([&](absl::string_view operation, const std::string& name) {
    if (operation != "write" || !ParseSegmentName(name).has_value()) return absl::OkStatus();
    if (++writes > 1) return absl::DataLossError("Input/output error");
    held.set_value();
    released.get_future().wait();
    return absl::OkStatus();
  });
  journal_->Append(Promise(1), [] {});
  held.get_future().wait();
  journal_->Append(Decision(10), [] {});
  EXPECT_EQ(Shown(), PositionsFrom(1, 10));
  journal_->Truncate(7);
  released.set_value();
  journal_->Stop();
  EXPECT_EQ(failures_, 1);
  directory_->set_hook(nullptr);
  // The file was written before that.
  options_.log.snapshot_position = 7;
  Open();
  EXPECT_EQ(Shown(), PositionsFrom(1, 9));
}

// A device that fails, or is full, at the nth operation of a truncation stands for a process that
// dies there.
TEST_F(DiskJournalHistoryTest, LosesNothingWhereverATruncationEnds) {
  for (const auto code : {absl::StatusCode::kDataLoss, absl::StatusCode::kResourceExhausted}) {
    int operations = 0;
    int failing = 0;
    do {
      ++failing;
      SCOPED_TRACE(absl::StrCat("operation ", failing, ", code ", static_cast<int>(code)));
      UseEmptyDirectory();
      OpenTruncated();
      operations = 0;
      directory_->set_hook([&](absl::string_view, const std::string&) {
        return ++operations == failing ? absl::Status(code, "full or broken") : absl::OkStatus();
      });
      TruncateAndReopen(7);
      ASSERT_EQ(Shown(), PositionsFrom(1, 9));
    } while (operations >= failing);
    // Two files are created, written, synced and renamed, segments removed, the directory synced.
    EXPECT_GT(failing, 12);
  }
  EXPECT_GT(failures_, 12);
}

// It is a copy: no state is made of it, and other shards have the records too.
TEST_F(DiskJournalHistoryTest, GoesOnWithoutADamagedFileAndSaysSo) {
  OpenTruncated();
  const std::string path = posix_->path() + "/history";
  std::string contents = ReadFile(path);
  contents[kSectorBytes + kFrameHeaderBytes] ^= 1;
  WriteFile(path, contents);
  Open();
  EXPECT_THAT(journal_->found().history_problem, HasSubstr(path + " at offset 512: payload CRC"));
  // Shows the records that are still in the journal; before the truncation there were more.
  EXPECT_EQ(Shown(), PositionsFrom(5, 9));
  ASSERT_TRUE(posix_->Remove("history").ok());
  Open();
  EXPECT_THAT(journal_->found().history_problem, HasSubstr(path + " is missing"));
  EXPECT_EQ(Shown(), PositionsFrom(5, 9));
  // The next truncation writes it anew.
  AppendSteps(10, 14);
  journal_->Stop();
  Open();
  TruncateAndReopen(12);
  EXPECT_EQ(journal_->found().history_problem, "");
  EXPECT_EQ(Shown(), PositionsFrom(5, 14));
}

}  // namespace
}  // namespace kaon::journal
