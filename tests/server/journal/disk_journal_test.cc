#include "server/journal/disk_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "tests/server/journal/hooked_directory.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

// Files whose operations are noted, held and refused.
constexpr char kSegment[] = "journal-0000000000000001";
constexpr char kStart[] = "start.tmp";
constexpr char kHistory[] = "history.tmp";

class DiskJournalTest : public testing::Test {
 protected:
  DiskJournalTest() {
    options_.log.id_if_created = {1, 2};
    options_.retry_delay = absl::Milliseconds(1);
    options_.idle_delay = absl::Hours(1);
  }

  void Open() {
    found_.clear();
    auto journal = DiskJournal::Open(directory_, options_, [this](const Entry& entry) {
      found_.push_back(Describe(entry));
      return absl::OkStatus();
    });
    ASSERT_TRUE(journal.ok()) << journal.status();
    journal_ = std::move(*journal);
    directory_.set_hook([this](absl::string_view operation, const std::string& name) {
      const bool asked = name == kSegment || name == kStart || name == kHistory;
      return asked ? OnOperation(operation) : absl::OkStatus();
    });
  }

  // Segments that hold few steps, and nine steps and a promise in them.
  void OpenWithNineSteps() {
    options_.log.segment_bytes = 3000;
    Open();
    for (uint64_t position = 1; position <= 9; ++position) {
      journal_->AppendGradient(Slice(position, position, 0, values_));
      Append(Prepare(position, position), 'p');
      Append(Decision(position), 'd');
    }
    Append(Promise(1), 'a');
    WaitUntilDone("pdpdpdpdpdpdpdpdpda");
  }

  // Everything that is done, in order.
  std::string Done() {
    MutexLock lock(mu_);
    return done_;
  }
  void Append(const Record& record, char name) {
    journal_->Append(record, [this, name] {
      MutexLock lock(mu_);
      // Nothing is done that is not synced.
      EXPECT_GT(syncs_, 0);
      done_ += name;
      operations_before_done_ = operations_;
      changed_.NotifyAll();
    });
  }
  void WaitUntilDone(absl::string_view names) {
    MutexLock lock(mu_);
    while (done_ != names) changed_.Wait(mu_);
  }
  // Waits until the disk is busy with `operation`, which then waits for Release.
  void WaitUntilHeld() {
    MutexLock lock(mu_);
    while (!held_) changed_.Wait(mu_);
  }
  void Hold(absl::string_view operation) {
    MutexLock lock(mu_);
    hold_ = std::string(operation);
  }
  void Release() {
    MutexLock lock(mu_);
    hold_.clear();
    changed_.NotifyAll();
  }
  // The first `good` operations of the kind still succeed.
  void SetError(absl::string_view operation, const absl::Status& status, int good = 0) {
    MutexLock lock(mu_);
    failing_ = std::string(operation);
    error_ = status;
    good_ = good;
  }
  // Waits until an operation has had the error.
  void WaitUntilRefused() {
    MutexLock lock(mu_);
    while (refused_ == 0) changed_.Wait(mu_);
  }
  void WaitUntilReadOnly(bool read_only) {
    MutexLock lock(mu_);
    while (journal_->Status().read_only_reason().empty() == read_only) {
      changed_.WaitFor(mu_, absl::Milliseconds(1));
    }
  }
  // Returns the entries that a process finds which starts now.
  std::vector<std::string> Reopened() {
    journal_.reset();
    directory_.set_hook(nullptr);
    Open();
    return found_;
  }

  absl::Status OnOperation(absl::string_view operation) {
    MutexLock lock(mu_);
    syncs_ += operation == "sync";
    while (hold_ == operation) {
      held_ = true;
      changed_.NotifyAll();
      changed_.Wait(mu_);
    }
    held_ = false;
    operations_ += operation[0];
    if (failing_ != operation || good_-- > 0) return absl::OkStatus();
    ++refused_;
    changed_.NotifyAll();
    return error_;
  }

  const std::unique_ptr<disk::PosixDirectory> posix_ = TemporaryDirectory();
  HookedDirectory directory_{*posix_};
  const std::vector<float> values_ = std::vector<float>(300, 1.25f);
  DiskJournal::Options options_;
  std::vector<std::string> found_;

  Mutex mu_;
  CondVar changed_;
  std::string done_;
  int syncs_ = 0;
  std::string hold_;
  bool held_ = false;
  std::string failing_;
  absl::Status error_;
  int good_ = 0;
  int refused_ = 0;
  // First letters: writes and syncs, in order.
  std::string operations_;
  std::string operations_before_done_;

  std::unique_ptr<DiskJournal> journal_;
};

TEST_F(DiskJournalTest, CompletesInTheOrderOfAppendsOnceSynced) {
  Open();
  Append(Promise(1), 'a');
  Append(Decision(1), 'b');
  journal_->AppendGradient(Slice(2, 1, 0, values_));
  Append(Prepare(2, 1), 'c');
  WaitUntilDone("abc");
  const std::vector<std::string> expected = {Describe(Promise(1)), Describe(Decision(1)),
                                             Describe(Slice(2, 1, 0, values_)),
                                             Describe(Prepare(2, 1))};
  EXPECT_EQ(Reopened(), expected);
}

TEST_F(DiskJournalTest, SyncsOnceForAllThatIsQueued) {
  Open();
  Hold("sync");
  Append(Promise(1), 'a');
  WaitUntilHeld();
  for (char name = 'b'; name <= 'h'; ++name) Append(Prepare(1, 1), name);
  EXPECT_EQ(Done(), "");
  Release();
  WaitUntilDone("abcdefgh");
  EXPECT_EQ(syncs_, 2);
}

// protocol.md 2.1 rule 5: durable in the same write as, or before, the next PREPARE; one sync per
// step.
TEST_F(DiskJournalTest, MakesADecisionDurableWithTheNextVote) {
  Open();
  Append(Prepare(1, 1), 'a');
  WaitUntilDone("a");
  Append(Decision(1), 'b');
  journal_->AppendGradient(Slice(2, 2, 0, values_));
  Append(Prepare(2, 2), 'c');
  WaitUntilDone("abc");
  EXPECT_EQ(syncs_, 2);
}

TEST_F(DiskJournalTest, MakesADecisionDurableWhenNothingFollows) {
  options_.idle_delay = absl::Milliseconds(1);
  Open();
  Append(Decision(1), 'a');
  WaitUntilDone("a");
  EXPECT_EQ(syncs_, 1);
}

TEST_F(DiskJournalTest, DoesNotLetAVoteWaitForLaterGradients) {
  Open();
  Hold("write");
  Append(Prepare(1, 1), 'a');
  WaitUntilHeld();
  journal_->AppendGradient(Slice(2, 2, 0, values_));
  Release();
  WaitUntilDone("a");
  MutexLock lock(mu_);
  EXPECT_EQ(operations_before_done_, "ws");
}

TEST_F(DiskJournalTest, TellsOfEachWriteOfAGradientAndOfNothingElse) {
  std::string told;
  options_.on_gradient_write = [&](bool writing) {
    MutexLock lock(mu_);
    told += writing ? '(' : ')';
    operations_ += writing ? '(' : ')';
  };
  Open();
  SetError("write", absl::ResourceExhaustedError("full"), 2);
  Append(Promise(1), 'a');
  journal_->AppendGradient(Slice(1, 1, 0, values_));
  journal_->AppendGradient(Slice(1, 1, 300, values_));
  WaitUntilRefused();
  SetError("", absl::OkStatus());
  Append(Prepare(1, 1), 'b');
  WaitUntilDone("ab");
  MutexLock lock(mu_);
  // Each write is between, and a write that found the disk full is one, too.
  EXPECT_TRUE(absl::StartsWith(told, "()()")) << told;
  EXPECT_EQ(told.size() % 2, 0u) << told;
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i % 2 == 0 ? '(' : ')') << told;
  // Other actions of a write, as on a full disk, are within it, too.
  const std::string others = std::regex_replace(operations_, std::regex("\\([^)]*\\)"), "");
  // The other writes are those of the promise and the vote.
  EXPECT_EQ(std::count(others.begin(), others.end(), 'w'), 2) << operations_;
}

TEST_F(DiskJournalTest, ForgetsGradientsThatNoVoteWillCome) {
  Open();
  Hold("write");
  Append(Promise(1), 'a');
  WaitUntilHeld();
  journal_->AppendGradient(Slice(2, 1, 0, values_));
  Append(Prepare(2, 1), 'b');
  journal_->AppendGradient(Slice(2, 2, 0, values_));
  Append(Promise(2), 'c');
  journal_->AppendGradient(Slice(2, 2, 300, values_));
  journal_->WithdrawGradients();
  Release();
  WaitUntilDone("abc");
  const std::vector<std::string> expected = {Describe(Promise(1)),
                                             Describe(Slice(2, 1, 0, values_)),
                                             Describe(Prepare(2, 1)), Describe(Promise(2))};
  EXPECT_EQ(Reopened(), expected);
}

// The values are the caller's again once the call returns.
TEST_F(DiskJournalTest, ReadsNoWithdrawnGradientAnyMore) {
  Open();
  std::vector<float> values = values_;
  Hold("write");
  journal_->AppendGradient(Slice(2, 1, 0, values));
  WaitUntilHeld();
  std::thread withdrawing([this, &values] {
    journal_->WithdrawGradients();
    std::fill(values.begin(), values.end(), -1.0f);
  });
  Release();
  withdrawing.join();
  Append(Prepare(2, 2), 'a');
  WaitUntilDone("a");
  const std::vector<std::string> expected = {Describe(Slice(2, 1, 0, values_)),
                                             Describe(Prepare(2, 2))};
  EXPECT_EQ(Reopened(), expected);
}

TEST_F(DiskJournalTest, ForgetsGradientsThatWaitForRoom) {
  Open();
  SetError("write", absl::ResourceExhaustedError("writing /d/x: No space left on device"));
  journal_->AppendGradient(Slice(2, 1, 0, values_));
  WaitUntilReadOnly(true);
  journal_->WithdrawGradients();
  SetError("", absl::OkStatus());
  Append(Promise(1), 'a');
  WaitUntilDone("a");
  EXPECT_EQ(Reopened(), std::vector<std::string>{Describe(Promise(1))});
}

// The shard serves again, although nothing is written that would tell of room.
TEST_F(DiskJournalTest, IsReadOnlyNoLongerThanSomethingWaitsForRoom) {
  std::atomic<bool> is_told_full = false;
  options_.on_room = [&](const absl::Status& status) { is_told_full = !status.ok(); };
  Open();
  SetError("write", absl::ResourceExhaustedError("writing /d/x: No space left on device"));
  journal_->AppendGradient(Slice(2, 1, 0, values_));
  WaitUntilReadOnly(true);
  journal_->WithdrawGradients();
  WaitUntilReadOnly(false);
  while (is_told_full) std::this_thread::yield();
  journal_->AppendGradient(Slice(2, 2, 0, values_));
  WaitUntilReadOnly(true);
  journal_.reset();
}

TEST_F(DiskJournalTest, ForgetsWhatASnapshotStandsForAndGoesOn) {
  OpenWithNineSteps();
  const uint64_t bytes = journal_->Status().bytes();
  const uint64_t appended = journal_->appended_bytes();
  EXPECT_EQ(appended, bytes);
  journal_->Truncate(7);
  while (journal_->Status().bytes() == bytes) std::this_thread::yield();
  EXPECT_LT(journal_->Status().bytes(), bytes / 2);
  EXPECT_EQ(journal_->appended_bytes(), appended);
  Append(Promise(2), 'b');
  WaitUntilDone("pdpdpdpdpdpdpdpdpdab");
  journal_.reset();
  options_.log.snapshot_position = 7;
  Open();
  EXPECT_EQ(found_.back(), Describe(Promise(2)));
  EXPECT_LT(found_.size(), 15u);
}

// P18: a disk that is too full even for the file that makes room.
TEST_F(DiskJournalTest, MakesRoomAsSoonAsItCanOnAFullDisk) {
  OpenWithNineSteps();
  const uint64_t bytes = journal_->Status().bytes();
  SetError("create", absl::ResourceExhaustedError("creating /d/start: No space left on device"));
  journal_->Truncate(7);
  // Only the truncation needs a new file.
  WaitUntilRefused();
  EXPECT_EQ(journal_->Status().bytes(), bytes);
  SetError("", absl::OkStatus());
  while (journal_->Status().bytes() == bytes) std::this_thread::yield();
  EXPECT_LT(journal_->Status().bytes(), bytes / 2);
}

// P18: nothing is acknowledged while the disk is full. The journal says why and continues by
// itself.
TEST_F(DiskJournalTest, WaitsForRoomAndGoesOnByItself) {
  std::vector<std::string> told;
  options_.on_room = [&](const absl::Status& status) {
    MutexLock lock(mu_);
    if (told.empty() || told.back() != status.message()) told.emplace_back(status.message());
  };
  Open();
  Append(Promise(1), 'a');
  WaitUntilDone("a");
  SetError("write", absl::ResourceExhaustedError("writing /d/x: No space left on device"));
  Append(Prepare(1, 1), 'b');
  WaitUntilReadOnly(true);
  EXPECT_EQ(journal_->Status().read_only_reason(), "writing /d/x: No space left on device");
  EXPECT_EQ(Done(), "a");
  SetError("", absl::OkStatus());
  WaitUntilDone("ab");
  WaitUntilReadOnly(false);
  Append(Promise(2), 'c');
  WaitUntilDone("abc");
  EXPECT_EQ(Reopened().size(), 3u);
  // The callback gets the reason of the full disk, then once an empty one.
  EXPECT_EQ(told, (std::vector<std::string>{"writing /d/x: No space left on device", ""}));
}

TEST_F(DiskJournalTest, SyncsWhatIsWrittenAlsoWhenTheDiskIsFull) {
  Open();
  Hold("write");
  Append(Promise(1), 'a');
  WaitUntilHeld();
  // This entry is queued behind it and would share its sync, if there were room.
  Append(Promise(2), 'b');
  SetError("write", absl::ResourceExhaustedError("full"), 1);
  Release();
  WaitUntilDone("a");
  SetError("", absl::OkStatus());
  WaitUntilDone("ab");
}

TEST_F(DiskJournalTest, WritesWhatIsQueuedWhenItStops) {
  Open();
  Hold("write");
  Append(Promise(1), 'a');
  WaitUntilHeld();
  Append(Decision(1), 'b');
  std::thread stopper([this] { journal_->Stop(); });
  Release();
  stopper.join();
  EXPECT_EQ(Done(), "ab");
  Append(Promise(2), 'c');
  EXPECT_EQ(Done(), "ab");
  EXPECT_EQ(Reopened(), (std::vector<std::string>{Describe(Promise(1)), Describe(Decision(1))}));
}

TEST_F(DiskJournalTest, StopsAlsoWhenTheDiskIsFull) {
  Open();
  SetError("write", absl::ResourceExhaustedError("full"));
  Append(Promise(1), 'a');
  WaitUntilReadOnly(true);
  journal_->Stop();
  EXPECT_EQ(Done(), "");
}

TEST_F(DiskJournalTest, ReportsAFailureForGoodAndDoesNothingMore) {
  for (const std::string operation : {"write", "sync"}) {
    absl::Status failure;
    options_.on_failed = [&](const absl::Status& status) {
      MutexLock lock(mu_);
      failure = status;
      changed_.NotifyAll();
    };
    Open();
    SetError(operation, absl::DataLossError("/d/x: Input/output error"));
    Append(Prepare(1, 1), 'a');
    {
      MutexLock lock(mu_);
      while (failure.ok()) changed_.Wait(mu_);
    }
    EXPECT_EQ(failure.code(), absl::StatusCode::kDataLoss);
    SetError("", absl::OkStatus());
    journal_->AppendGradient(Slice(1, 1, 0, values_));
    Append(Prepare(2, 2), 'b');
    journal_->Stop();
    EXPECT_EQ(Done(), "");
    directory_.set_hook(nullptr);
  }
}

// P18: a failed sync ends the process at once.
TEST_F(DiskJournalTest, EndsTheProcessWhenASyncFails) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Open();
        SetError("sync", absl::DataLossError("syncing /d/x: Input/output error"));
        Append(Prepare(1, 1), 'a');
        WaitUntilDone("a");
      },
      "journal: DATA_LOSS: syncing /d/x: Input/output error");
}

TEST_F(DiskJournalTest, GivesALongGradientBackInPieces) {
  std::vector<float> values(3 * kMaxGradientBytes / sizeof(float) + 5);
  std::iota(values.begin(), values.end(), 1.0f);
  Open();
  journal_->AppendGradient(Slice(1, 1, 0, values));
  Append(Prepare(1, 1), 'a');
  WaitUntilDone("a");
  journal_.reset();
  std::vector<float> read;
  const auto again = DiskJournal::Open(*posix_, options_, [&read](const Entry& entry) {
    if (const auto* slice = std::get_if<GradientSlice>(&entry)) {
      EXPECT_EQ(slice->offset, read.size());
      read.insert(read.end(), slice->values.begin(), slice->values.end());
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(read, values);
}

TEST_F(DiskJournalTest, ShowsHistoryAndWhatItFoundAfterARestart) {
  Open();
  for (uint64_t position = 1; position <= 1100; ++position) {
    journal_->Append(Decision(position), [] {});
  }
  EXPECT_EQ(journal_->History(0, 5000)->size(), kMaxHistory);
  EXPECT_EQ(Reopened().size(), 1100u);
  const auto records = journal_->History(0, 5000);
  ASSERT_EQ(records->size(), kMaxHistory);
  EXPECT_EQ(records->front().plan().position(), 101u);
  const v1::JournalStatus status = journal_->Status();
  EXPECT_EQ(status.recovered_entries(), 1100u);
  EXPECT_EQ(status.bytes(), ReadFile(posix_->path() + "/" + kSegment).size());
  EXPECT_GT(status.recovery_seconds(), 0);
  EXPECT_EQ(status.torn_tail(), "");
}

TEST_F(DiskJournalTest, DoesNotOpenADamagedJournal) {
  Open();
  Append(Promise(1), 'a');
  WaitUntilDone("a");
  journal_.reset();
  std::string contents = ReadFile(posix_->path() + "/" + kSegment);
  contents[600] ^= 1;
  WriteFile(posix_->path() + "/" + kSegment, contents);
  const auto status = DiskJournal::Open(directory_, options_, [](const Entry&) {
                        return absl::OkStatus();
                      }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kaon::journal
