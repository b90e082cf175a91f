#include "server/journal/journal_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/journal/hooked_directory.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

constexpr char kFirstSegment[] = "journal-0000000000000001";

class JournalLogTest : public testing::Test {
 protected:
  std::unique_ptr<JournalLog> MustOpen(uint64_t segment_bytes = uint64_t{1} << 20) {
    absl::StatusOr<std::unique_ptr<JournalLog>> log = OpenLog(directory_, &found_, segment_bytes);
    EXPECT_TRUE(log.ok()) << log.status();
    return log.ok() ? std::move(*log) : nullptr;
  }

  absl::Status OpenStatus() { return OpenLog(directory_, &found_).status(); }

  // Appends an entry and remembers it for the comparison.
  void Append(JournalLog& log, const Entry& entry) {
    const absl::Status status = log.Append(entry);
    EXPECT_TRUE(status.ok()) << status;
    appended_.push_back(Describe(entry));
  }

  void AppendSteps(JournalLog& log, uint64_t first, uint64_t last) {
    for (uint64_t position = first; position <= last; ++position) {
      Append(log, Slice(position, position, 3, values_));
      Append(log, Prepare(position, position));
      EXPECT_TRUE(log.Sync().ok());
      Append(log, Decision(position));
    }
  }

  std::vector<std::string> Names() const { return std::move(posix_->List()).value(); }
  std::string Path(const std::string& name) const { return posix_->path() + "/" + name; }

  const std::unique_ptr<disk::PosixDirectory> posix_ = TemporaryDirectory();
  HookedDirectory directory_{*posix_};
  const std::vector<float> values_ = std::vector<float>(300, 1.25f);
  std::vector<std::string> appended_;
  std::vector<std::string> found_;
};

TEST_F(JournalLogTest, TruncationLeavesWhatFollowsTheDecision) {
  std::unique_ptr<JournalLog> log = MustOpen(3000);
  AppendSteps(*log, 1, 20);
  const uint64_t bytes = log->bytes();
  const uint64_t appended_bytes = log->appended_bytes();
  ASSERT_TRUE(log->Truncate(15).ok());
  EXPECT_LT(log->bytes(), bytes / 2);
  EXPECT_EQ(log->appended_bytes(), appended_bytes);
  EXPECT_EQ(log->decided_position(), 20u);
  // Again, and for less: nothing more goes.
  const std::vector<std::string> names = Names();
  ASSERT_TRUE(log->Truncate(15).ok());
  ASSERT_TRUE(log->Truncate(3).ok());
  EXPECT_EQ(Names(), names);
  AppendSteps(*log, 21, 25);
  log = MustOpen(3000);
  EXPECT_EQ(log->bytes(), log->found().bytes);
  // The journal holds a whole tail of the appended entries, with the decision in it.
  ASSERT_LT(found_.size(), appended_.size());
  EXPECT_EQ(found_, std::vector<std::string>(appended_.end() - found_.size(), appended_.end()));
  EXPECT_NE(std::find(found_.begin(), found_.end(), Describe(Decision(15))), found_.end());
  AppendSteps(*log, 26, 30);
  ASSERT_TRUE(log->Truncate(30).ok());
  EXPECT_LT(log->bytes(), 6000u);
}

TEST_F(JournalLogTest, RefusesToTruncateWhatWasNotDecided) {
  std::unique_ptr<JournalLog> log = MustOpen(3000);
  AppendSteps(*log, 1, 5);
  const absl::Status status = log->Truncate(6);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(
      absl::StrContains(status.message(), "up to position 6, the newest decision in it is of 5"))
      << status;
  EXPECT_TRUE(log->Append(Promise(9)).ok());
}

// The record of the removed segments is durable before the first of them is removed.
TEST_F(JournalLogTest, SaysWhereItBeginsBeforeItRemovesAnything) {
  std::unique_ptr<JournalLog> log = MustOpen(3000);
  AppendSteps(*log, 1, 10);
  std::vector<std::string> operations;
  directory_.set_hook([&](absl::string_view operation, const std::string& name) {
    operations.push_back(absl::StrCat(operation, " ", name));
    return absl::OkStatus();
  });
  ASSERT_TRUE(log->Truncate(6).ok());
  const auto at = [&](const std::string& operation) {
    const auto found = std::find(operations.begin(), operations.end(), operation);
    EXPECT_NE(found, operations.end()) << operation;
    return found - operations.begin();
  };
  EXPECT_LT(at("write start.tmp"), at("sync start.tmp"));
  EXPECT_LT(at("sync start.tmp"), at("rename start.tmp"));
  EXPECT_LT(at("rename start.tmp"), at("sync directory "));
  EXPECT_LT(at("sync directory "), at(absl::StrCat("remove ", kFirstSegment)));
}

TEST_F(JournalLogTest, AFullDiskLeavesTheJournalWhole) {
  std::unique_ptr<JournalLog> log = MustOpen(3000);
  AppendSteps(*log, 1, 10);
  const std::vector<std::string> names = Names();
  directory_.set_hook([&](absl::string_view operation, const std::string& name) {
    return operation == "write" && name == "start.tmp" ? absl::ResourceExhaustedError("full")
                                                       : absl::OkStatus();
  });
  EXPECT_EQ(log->Truncate(6).code(), absl::StatusCode::kResourceExhausted);
  directory_.set_hook(nullptr);
  ASSERT_TRUE(posix_->Remove("start.tmp").ok());
  EXPECT_EQ(Names(), names);
  AppendSteps(*log, 11, 12);
  ASSERT_TRUE(log->Truncate(6).ok());
  EXPECT_LT(Names().size(), names.size());
}

// The removed segments are covered by no snapshot, or only by one that is too old.
TEST_F(JournalLogTest, RefusesATruncatedJournalWithoutItsSnapshot) {
  std::unique_ptr<JournalLog> log = MustOpen(3000);
  AppendSteps(*log, 1, 10);
  ASSERT_TRUE(log->Truncate(6).ok());
  log.reset();
  JournalLog::Options options;
  const auto open = [&](uint64_t position) {
    options.snapshot_position = position;
    return JournalLog::Open(directory_, options, [](const Entry&) { return absl::OkStatus(); })
        .status();
  };
  EXPECT_TRUE(open(6).ok());
  EXPECT_TRUE(open(10).ok());
  EXPECT_TRUE(absl::StrContains(open(11).message(),
                                "ends with the decision of position 10, the newest whole snapshot "
                                "is of position 11"));
  const absl::Status status = open(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "/start says that the journal was removed up to position 6, the "
                                "newest whole snapshot is of position 5"))
      << status;
}

TEST_F(JournalLogTest, ReadsBackWhatWasAppendedInOrder) {
  std::unique_ptr<JournalLog> log = MustOpen();
  EXPECT_EQ(log->found().entries, 0u);
  Append(*log, Promise(1));
  AppendSteps(*log, 1, 5);
  log = MustOpen();
  EXPECT_EQ(found_, appended_);
  EXPECT_EQ(log->found().entries, appended_.size());
  EXPECT_EQ(log->found().torn_tail, "");
  AppendSteps(*log, 6, 7);
  log = MustOpen();
  EXPECT_EQ(found_, appended_);
  EXPECT_EQ(log->bytes(), ReadFile(Path(kFirstSegment)).size());
  EXPECT_EQ(log->found().bytes, log->bytes());
}

TEST_F(JournalLogTest, CutsALongGradientIntoFramesAndGivesItBackInOrder) {
  std::vector<float> values(600'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::unique_ptr<JournalLog> log = MustOpen(uint64_t{1} << 30);
  GradientSlice slice = Slice(2, 4, 6, values);
  slice.offset = 1000;
  ASSERT_TRUE(log->Append(slice).ok());
  ASSERT_TRUE(log->Append(Slice(2, 4, 7, {})).ok());
  std::vector<uint64_t> offsets;
  std::vector<float> read;
  const auto visit = [&](const Entry& entry) {
    const auto& piece = std::get<GradientSlice>(entry);
    if (piece.parameter_id == 7) return absl::OkStatus();
    EXPECT_EQ(piece.generation, 4u);
    offsets.push_back(piece.offset);
    read.insert(read.end(), piece.values.begin(), piece.values.end());
    return absl::OkStatus();
  };
  ASSERT_TRUE(JournalLog::Open(directory_, {}, visit).ok());
  EXPECT_EQ(offsets, (std::vector<uint64_t>{1000, 263144, 525288}));
  EXPECT_EQ(read, values);
}

TEST_F(JournalLogTest, ClosesSegmentsAndReadsThemAll) {
  std::unique_ptr<JournalLog> log = MustOpen(8192);
  AppendSteps(*log, 1, 30);
  EXPECT_GT(posix_->List()->size(), 5u);
  log = MustOpen(8192);
  EXPECT_EQ(found_, appended_);
  uint64_t bytes = 0;
  for (const std::string& name : Names()) {
    if (ParseSegmentName(name).has_value()) bytes += ReadFile(Path(name)).size();
  }
  EXPECT_EQ(log->bytes(), bytes);
}

// A power cut must not remove the file's name once its content counts as durable.
TEST_F(JournalLogTest, MakesASegmentsNameDurableBeforeItIsUsed) {
  std::unique_ptr<JournalLog> log = MustOpen(2048);
  std::vector<std::string> operations;
  directory_.set_hook([&](absl::string_view operation, const std::string& name) {
    const std::optional<uint64_t> segment = ParseSegmentName(name);
    operations.push_back(
        absl::StrCat(operation, " ", segment.has_value() ? absl::StrCat(*segment) : name));
    return absl::OkStatus();
  });
  while (operations.empty() || operations.back() != "write 6") {
    ASSERT_LT(operations.size(), 30u);
    ASSERT_TRUE(log->Append(Prepare(1, 1)).ok());
  }
  const std::vector<std::string> expected = {
      "write 1", "write 1", "write 1",
      // Closing: all of it durable, the next one durable with its name, then the end of this one.
      "sync 1", "write durable", "create 6", "write 6", "sync 6", "sync directory ", "write 1",
      "sync 1", "write durable", "write 6"};
  EXPECT_EQ(operations, expected);
}

TEST_F(JournalLogTest, SyncsOnlyWhatIsNotDurable) {
  std::unique_ptr<JournalLog> log = MustOpen();
  int syncs = 0;
  directory_.set_hook([&](absl::string_view operation, const std::string&) {
    syncs += operation == "sync";
    return absl::OkStatus();
  });
  ASSERT_TRUE(log->Sync().ok());
  EXPECT_EQ(syncs, 0);
  Append(*log, Promise(1));
  Append(*log, Prepare(1, 1));
  EXPECT_EQ(syncs, 0);
  ASSERT_TRUE(log->Sync().ok());
  ASSERT_TRUE(log->Sync().ok());
  EXPECT_EQ(syncs, 1);
}

// Entries that were read back count: a promise that only the page cache held must not be lost
// later.
TEST_F(JournalLogTest, MakesDurableWhatItReadBack) {
  Append(*MustOpen(), Promise(1));
  bool synced = false;
  directory_.set_hook([&](absl::string_view operation, const std::string& name) {
    synced |= operation == "sync" && name == kFirstSegment;
    return absl::OkStatus();
  });
  MustOpen();
  EXPECT_TRUE(synced);
}

TEST_F(JournalLogTest, CutsATornTailOffAndNamesIt) {
  std::unique_ptr<JournalLog> log = MustOpen();
  AppendSteps(*log, 1, 3);
  ASSERT_TRUE(log->Sync().ok());
  const uint64_t whole = log->bytes();
  ASSERT_TRUE(log->Append(Slice(4, 4, 3, values_)).ok());
  log.reset();
  std::string contents = ReadFile(Path(kFirstSegment));
  // The second of the frame's sectors was never written.
  contents.replace(whole + 512, 512, std::string(512, '\0'));
  WriteFile(Path(kFirstSegment), contents);
  log = MustOpen();
  EXPECT_EQ(found_, appended_);
  EXPECT_EQ(log->found().torn_tail,
            absl::StrCat(Path(kFirstSegment), " from offset ", whole, ": 1536 bytes"));
  EXPECT_EQ(ReadFile(Path(kFirstSegment)).size(), whole);
  AppendSteps(*log, 4, 4);
  EXPECT_EQ(MustOpen()->found().torn_tail, "");
  EXPECT_EQ(found_, appended_);
}

// Frames written after the lost one may have reached the disk first.
TEST_F(JournalLogTest, CutsOffWhatFollowsALostFrameThatWasNeverDurable) {
  std::unique_ptr<JournalLog> log = MustOpen();
  AppendSteps(*log, 1, 2);
  ASSERT_TRUE(log->Sync().ok());
  const uint64_t whole = log->bytes();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(log->Append(Promise(9)).ok());
  log.reset();
  std::string contents = ReadFile(Path(kFirstSegment));
  contents.replace(whole, 512, std::string(512, '\0'));
  WriteFile(Path(kFirstSegment), contents);
  MustOpen();
  EXPECT_EQ(found_, appended_);
}

TEST_F(JournalLogTest, ReportsALostFrameThatALaterOneSaysWasDurable) {
  std::unique_ptr<JournalLog> log = MustOpen();
  AppendSteps(*log, 1, 2);
  ASSERT_TRUE(log->Sync().ok());
  const uint64_t whole = log->bytes();
  Append(*log, Promise(8));
  ASSERT_TRUE(log->Sync().ok());
  Append(*log, Promise(9));
  log.reset();
  ASSERT_TRUE(posix_->Remove("durable").ok());
  std::string contents = ReadFile(Path(kFirstSegment));
  contents.replace(whole, 512, std::string(512, '\0'));
  WriteFile(Path(kFirstSegment), contents);
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            absl::StrCat("journal ", Path(kFirstSegment), " at offset ", whole,
                         ", frame 8 after position 2: magic number 0 read, expecting 2437562699; "
                         "everything up to 8 was durable"));
  EXPECT_EQ(ReadFile(Path(kFirstSegment)), contents);
}

// Nothing follows the newest vote but the file `durable`.
TEST_F(JournalLogTest, ReportsThatTheNewestDurableFrameIsMissing) {
  std::unique_ptr<JournalLog> log = MustOpen();
  AppendSteps(*log, 1, 2);
  const uint64_t whole = log->bytes();
  Append(*log, Prepare(3, 3));
  ASSERT_TRUE(log->Sync().ok());
  log.reset();
  std::string contents = ReadFile(Path(kFirstSegment));
  contents.resize(whole);
  WriteFile(Path(kFirstSegment), contents);
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), absl::StrCat("journal ", Path(kFirstSegment), " at offset ", whole,
                                           ", frame 8 after position 2: it is missing; everything "
                                           "up to 8 was durable"));
}

TEST_F(JournalLogTest, ReportsEverySegmentThatIsMissing) {
  AppendSteps(*MustOpen(4096), 1, 12);
  for (const std::string& name : Names()) {
    if (!ParseSegmentName(name).has_value()) continue;
    const std::string contents = ReadFile(Path(name));
    ASSERT_TRUE(posix_->Remove(name).ok());
    const absl::Status status = OpenStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name;
    EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
    WriteFile(Path(name), contents);
  }
  EXPECT_TRUE(OpenStatus().ok());
  EXPECT_EQ(found_, appended_);
}

TEST_F(JournalLogTest, ReportsAJournalThatLostItsIdentity) {
  Append(*MustOpen(), Promise(1));
  ASSERT_TRUE(posix_->Remove("identity").ok());
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(Path("identity") + " is missing"), absl::string_view::npos)
      << status;
  ASSERT_TRUE(posix_->Remove("durable").ok());
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kDataLoss);
}

TEST_F(JournalLogTest, ReportsFilesOfAnotherDirectory) {
  Append(*MustOpen(), Promise(1));
  const std::string segment = ReadFile(Path(kFirstSegment));
  for (const std::string& name : Names()) ASSERT_TRUE(posix_->Remove(name).ok());
  JournalLog::Options options;
  options.id_if_created = {1, 2};
  ASSERT_TRUE(
      JournalLog::Open(directory_, options, [](const Entry&) { return absl::OkStatus(); }).ok());
  ASSERT_TRUE(posix_->Remove("durable").ok());
  WriteFile(Path(kFirstSegment), segment);
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("a frame of directory "), absl::string_view::npos) << status;
}

TEST_F(JournalLogTest, StopsReadingWhereTheVisitorDoes) {
  AppendSteps(*MustOpen(), 1, 3);
  int visited = 0;
  const absl::Status status =
      JournalLog::Open(directory_, {}, [&](const Entry&) {
        return ++visited < 3 ? absl::OkStatus() : absl::AbortedError("enough");
      }).status();
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(visited, 3);
}

// A full disk (P18): nothing counts as appended, and the call may be made again, for the same entry
// or another one.
TEST_F(JournalLogTest, GoesOnOnceAFullDiskHasRoomAgain) {
  std::unique_ptr<JournalLog> log = MustOpen(4096);
  bool full = false;
  directory_.set_hook([&](absl::string_view operation, const std::string&) {
    const bool needs_room = operation == "write" || operation == "create";
    return full && needs_room ? absl::ResourceExhaustedError("No space left on device")
                              : absl::OkStatus();
  });
  for (uint64_t position = 1; position <= 20; ++position) {
    full = true;
    EXPECT_EQ(log->Append(Slice(position, position, 3, values_)).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(log->Append(Prepare(position, position)).code(),
              absl::StatusCode::kResourceExhausted);
    full = false;
    Append(*log, Prepare(position, position));
    Append(*log, Decision(position));
    ASSERT_TRUE(log->Sync().ok());
  }
  log = MustOpen();
  EXPECT_EQ(log->found().torn_tail, "");
  EXPECT_EQ(found_, appended_);
}

// The operating system refuses a write after doing a part of it.
TEST_F(JournalLogTest, GoesOnAfterTheSystemRefusedToLetAFileGrow) {
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  std::unique_ptr<JournalLog> log = MustOpen(1 << 20);
  for (uint64_t position = 1; position <= 30; ++position) {
    const Entry slice = Slice(position, position, 3, values_);
    const rlimit low = {log->bytes() + position * 50, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    const absl::Status status = log->Append(slice);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    if (position % 2 == 0) Append(*log, slice);
    Append(*log, Prepare(position, position));
    if (position % 3 == 0) log = MustOpen();
  }
  MustOpen();
  EXPECT_EQ(found_, appended_);
}

TEST_F(JournalLogTest, GoesOnWhereverTheDiskWasFullWhileASegmentWasClosed) {
  std::unique_ptr<JournalLog> log = MustOpen(2048);
  // The write or creation that fails, counted from the closing.
  for (int failing = 0; failing < 6; ++failing) {
    int left = failing;
    directory_.set_hook([&](absl::string_view operation, const std::string& name) {
      const bool needs_room = (operation == "write" && name != "durable") || operation == "create";
      return needs_room && left-- == 0 ? absl::ResourceExhaustedError("full") : absl::OkStatus();
    });
    for (int i = 0; i < 4; ++i) {
      const absl::Status status = log->Append(Promise(1));
      if (status.code() == absl::StatusCode::kResourceExhausted) {
        ASSERT_TRUE(log->Append(Promise(1)).ok());
      } else {
        ASSERT_TRUE(status.ok()) << status;
      }
      appended_.push_back(Describe(Promise(1)));
    }
    EXPECT_LT(left, 0) << failing;
  }
  MustOpen(2048);
  EXPECT_EQ(found_, appended_);
}

TEST_F(JournalLogTest, DoesNothingMoreOnceTheDeviceFailed) {
  std::unique_ptr<JournalLog> log = MustOpen();
  bool failing = true;
  directory_.set_hook([&](absl::string_view operation, const std::string&) {
    return failing && operation == "write" ? absl::DataLossError("Input/output error")
                                           : absl::OkStatus();
  });
  EXPECT_EQ(log->Append(Promise(1)).code(), absl::StatusCode::kDataLoss);
  failing = false;
  EXPECT_EQ(log->Append(Promise(1)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(log->Sync().code(), absl::StatusCode::kDataLoss);
}

// Even a sync that failed for lack of room is final, because the content of the file is unknown.
TEST_F(JournalLogTest, NeverTriesAFailedSyncAgain) {
  std::unique_ptr<JournalLog> log = MustOpen();
  bool failing = true;
  directory_.set_hook([&](absl::string_view operation, const std::string&) {
    return failing && operation == "sync" ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  });
  Append(*log, Promise(1));
  EXPECT_EQ(log->Sync().code(), absl::StatusCode::kDataLoss);
  failing = false;
  EXPECT_EQ(log->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(log->Append(Promise(1)).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kaon::journal
