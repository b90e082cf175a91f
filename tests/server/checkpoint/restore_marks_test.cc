// The processes that restore and remove a checkpoint may sleep or die before any change that they
// make in the directory. A checkpoint that was granted to a restore is never removed. A checkpoint
// that no restore uses is removed in the end.
#include "server/checkpoint/restore_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "tests/server/checkpoint/stepped_directory.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr size_t kKeep = 2;
// Position of the job's newest checkpoint before the restore.
constexpr LogPoint kBefore = {1, 14};
// The restore is planned as an entry after it.
const RestoreMark kMark = {"a", 2, {1, 20}};
// Position at which other entries than the restore were decided instead.
constexpr LogPoint kOtherwise = {1, 25};
constexpr LogPoint kRestored = {2, 31};

TinyShards OfTimeline(uint64_t timeline) {
  TinyShards shards;
  shards.timeline = timeline;
  return shards;
}

// Does the part of a shard before it votes.
bool Restore(disk::Directory& files) {
  CheckpointDirectory directory(files);
  return MarkRestore(files, kMark).ok() && directory.Verify("a").ok();
}

// Does the part of a coordinator after its newest checkpoint. Returns true on success.
bool Retain(disk::Directory& files, const LogPoint& reached) {
  CheckpointDirectory directory(files);
  return directory.Retain("tiny", kKeep, {}, reached).ok();
}

bool IsThere(disk::Directory& files) {
  CheckpointDirectory directory(files);
  return directory.Verify("a").ok();
}

std::vector<std::string> FilesOf(disk::Directory& files, const std::string& id) {
  std::vector<std::string> found;
  const std::vector<std::string> names = *files.List();
  for (const std::string& name : names) {
    if (absl::StartsWith(name, id + ".")) found.push_back(name);
  }
  return found;
}

// "a" is older than the checkpoints that are kept.
void WriteThree(disk::Directory& files) {
  CheckpointDirectory directory(files);
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(WriteCheckpoint(directory, id, 10 + static_cast<uint64_t>(*id - 'a')).ok());
  }
}

// Checks the outcome once no process sleeps any more.
void ExpectSettles(simulation::SimulatedDirectory& files, bool restored) {
  if (!restored) {
    ASSERT_TRUE(Retain(files, kOtherwise));
    EXPECT_THAT(FilesOf(files, "a"), ::testing::IsEmpty());
    return;
  }
  // A coordinator that does not know of the restore leaves the checkpoint. One that knows leaves it
  // until there are two newer checkpoints.
  EXPECT_TRUE(Retain(files, kBefore) && IsThere(files));
  CheckpointDirectory directory(files);
  ASSERT_TRUE(WriteCheckpoint(directory, "d", 30, OfTimeline(2)).ok());
  EXPECT_TRUE(Retain(files, {2, 30}) && IsThere(files));
  ASSERT_TRUE(WriteCheckpoint(directory, "e", 31, OfTimeline(2)).ok());
  ASSERT_TRUE(Retain(files, kRestored));
  EXPECT_THAT(FilesOf(files, "a"), ::testing::IsEmpty());
}

// Two processes that work in one directory in turn, each on its own thread. The first runs up to
// its change `stops[0]`, the second up to its change `stops[1]`. Then the first runs to its end,
// and after it the second.
class Alternation {
 public:
  using Party = std::function<void(disk::Directory&)>;

  Alternation(disk::Directory& files, const std::array<uint64_t, 2>& stops) : stops_(stops) {
    for (size_t i : {0, 1}) {
      directories_[i].emplace(files, [this, i](uint64_t change) {
        if (change == stops_[i]) Stop(i);
        return absl::OkStatus();
      });
    }
  }

  void Run(const std::array<Party, 2>& parties) {
    std::array<std::thread, 2> threads;
    for (size_t i : {0, 1}) {
      threads[i] = std::thread([this, i, &parties] {
        Await(i);
        parties[i](*directories_[i]);
        End(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Party i was, before its end.
  bool stopped(size_t i) { return directories_[i]->changes() > stops_[i]; }

 private:
  void Await(size_t i) {
    MutexLock lock(mu_);
    while (running_ != i) wake_.Wait(mu_);
  }
  void Stop(size_t i) {
    {
      MutexLock lock(mu_);
      if (!ended_[1 - i]) running_ = 1 - i;
      wake_.NotifyAll();
    }
    Await(i);
  }
  void End(size_t i) {
    MutexLock lock(mu_);
    ended_[i] = true;
    running_ = 1 - i;
    wake_.NotifyAll();
  }

  const std::array<uint64_t, 2> stops_;
  std::array<std::optional<SteppedDirectory>, 2> directories_;
  Mutex mu_;
  CondVar wake_;
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<bool, 2> ended_ ABSL_GUARDED_BY(mu_) = {};
};

// Tries every pair of stops. Returns the numbers of granted restores and of removed checkpoints.
std::pair<int, int> TryAll(bool restore_begins) {
  int granted = 0;
  int removed = 0;
  for (uint64_t first = 0; first < 64; ++first) {
    bool first_stops = false;
    bool second_stops = true;
    for (uint64_t second = 0; second_stops && second < 64; ++second) {
      SCOPED_TRACE(absl::StrCat("first stopped before change ", first, ", second before ", second));
      simulation::SimulatedDirectory files("disk", 1);
      WriteThree(files);
      bool restored = false;
      bool retained = false;
      const auto restore = [&restored](disk::Directory& own) { restored = Restore(own); };
      const auto retain = [&retained](disk::Directory& own) { retained = Retain(own, kBefore); };
      Alternation alternation(files, {first, second});
      if (restore_begins) {
        alternation.Run({restore, retain});
      } else {
        alternation.Run({retain, restore});
      }
      EXPECT_TRUE(retained);
      first_stops = alternation.stopped(0);
      second_stops = alternation.stopped(1);
      granted += restored ? 1 : 0;
      removed += IsThere(files) ? 0 : 1;
      EXPECT_TRUE(!restored || IsThere(files));
      ExpectSettles(files, restored);
      if (testing::Test::HasFailure()) return {granted, removed};
    }
    if (!first_stops) return {granted, removed};
  }
  ADD_FAILURE() << "it never ends";
  return {granted, removed};
}

TEST(RestoreMarksTest, WhatARestoreWasGrantedIsNeverRemovedWhoeverSleeps) {
  for (const bool restore_begins : {true, false}) {
    const auto [granted, removed] = TryAll(restore_begins);
    EXPECT_GE(granted, restore_begins ? 3 : 1);
    EXPECT_GE(removed, 3);
  }
}

// One process sleeps before a change while the other and a second retention run. Either may begin.
TEST(RestoreMarksTest, NorBetweenTwoRetentions) {
  for (const bool restore_begins : {true, false}) {
    bool slept = true;
    for (uint64_t change = 0; slept; ++change) {
      SCOPED_TRACE(absl::StrCat("stopped before change ", change, ", ", restore_begins));
      simulation::SimulatedDirectory files("disk", 1);
      WriteThree(files);
      bool restored = false;
      slept = false;
      SteppedDirectory sleeper(files, [&](uint64_t number) {
        if (number != change) return absl::OkStatus();
        slept = true;
        if (restore_begins) restored = Restore(files);
        EXPECT_TRUE(Retain(files, kBefore));
        if (!restore_begins) restored = Restore(files);
        return absl::OkStatus();
      });
      EXPECT_TRUE(Retain(sleeper, kBefore));
      EXPECT_TRUE(!restored || IsThere(files));
      ExpectSettles(files, restored);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// The death may be a power cut. A marked checkpoint is still marked afterwards.
TEST(RestoreMarksTest, ADeathLeavesWhatTheNextRetentionFinishes) {
  for (const bool cut : {false, true}) {
    for (const bool restore_dies : {true, false}) {
      bool died = true;
      for (uint64_t change = 0; died; ++change) {
        SCOPED_TRACE(absl::StrCat("dead before change ", change, ", ", restore_dies, cut));
        simulation::SimulatedDirectory files("disk", change);
        WriteThree(files);
        died = false;
        SteppedDirectory mortal(files, [&](uint64_t number) {
          died |= number == change;
          return died ? absl::UnavailableError("dead") : absl::OkStatus();
        });
        bool restored = false;
        if (restore_dies) {
          restored = Restore(mortal);
        } else {
          const bool retained = Retain(mortal, kBefore);
          EXPECT_EQ(retained, !died);
        }
        if (cut) files.CutPower();
        if (!restore_dies) restored = Restore(files);
        EXPECT_TRUE(!restored || IsThere(files));
        ExpectSettles(files, restored);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST(RestoreMarksTest, WhoeverSeesTheOthersMarkSaysWhichItIs) {
  simulation::SimulatedDirectory files("disk", 1);
  WriteThree(files);
  ASSERT_TRUE(MarkRemoval(files, "a", {}).ok());
  const absl::Status refused = MarkRestore(files, kMark);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("checkpoint a is being removed"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("disk/a.removing"));
  EXPECT_TRUE(MarkRestore(files, {"b", 2, {1, 20}}).ok());
}

TEST(RestoreMarksTest, ADirectoryThatCannotBeWrittenRefusesARestore) {
  simulation::SimulatedDirectory files("disk", 1);
  WriteThree(files);
  for (uint64_t change = 0; change < 3; ++change) {
    SteppedDirectory read_only(files, [change](uint64_t number) {
      return number < change ? absl::OkStatus()
                             : absl::FailedPreconditionError("Read-only file system");
    });
    const absl::Status refused = MarkRestore(read_only, kMark);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(refused.message(),
              "checkpoint a cannot be restored, as its restore cannot be marked in disk: "
              "Read-only file system");
  }
}

TEST(RestoreMarksTest, AMarkKeepsUntilTheLogHasPassedItOrEnoughWereTakenSince) {
  simulation::SimulatedDirectory files("disk", 1);
  const auto keeps = [&files](const LogPoint& reached, std::vector<uint64_t> newer) {
    const RestoreMarks marks = FindRestoreMarks(files, "a", {reached, std::move(newer)}, 2).value();
    EXPECT_EQ(marks.keeping.size() + marks.over.size(), 1u);
    return !marks.keeping.empty();
  };
  // The mark is of the third timeline, planned at position 20 of the second.
  ASSERT_TRUE(MarkRestore(files, {"a", 3, {2, 20}}).ok());
  EXPECT_TRUE(keeps({0, 0}, {}));
  EXPECT_TRUE(keeps({2, 19}, {2, 2, 2}));
  // Positions of an earlier timeline say nothing about this one.
  EXPECT_TRUE(keeps({1, 100}, {1, 1, 1}));
  EXPECT_FALSE(keeps({2, 20}, {}));
  EXPECT_TRUE(keeps({3, 20}, {3}));
  EXPECT_FALSE(keeps({3, 22}, {3, 3}));
  EXPECT_TRUE(keeps({3, 22}, {3, 2, 2}));
  // Those of a life of the job that went further before its shards were emptied.
  EXPECT_TRUE(keeps({3, 22}, {9, 9}));
}

TEST(RestoreMarksTest, WhatAnotherVersionMarkedKeeps) {
  for (const char* name : {"a.restore-", "a.restore-3", "a.restore-3.at-2", "a.restore-x.at-1-1"}) {
    simulation::SimulatedDirectory files("disk", 1);
    WriteThree(files);
    ASSERT_TRUE(files.Create(name).ok());
    EXPECT_TRUE(Retain(files, kOtherwise) && IsThere(files)) << name;
  }
}

TEST(RestoreMarksTest, MarksAreNoCheckpointAndNoAttempt) {
  simulation::SimulatedDirectory files("disk", 1);
  WriteThree(files);
  CheckpointDirectory directory(files);
  ASSERT_TRUE(MarkRestore(files, kMark).ok());
  ASSERT_TRUE(MarkRestore(files, {"gone", 2, {1, 20}}).ok());
  ASSERT_TRUE(MarkRemoval(files, "gone", {}).ok());
  EXPECT_THAT(*directory.List(), ::testing::ElementsAre("a", "b", "c"));
  EXPECT_TRUE(directory.Unfinished()->empty());
  EXPECT_TRUE(directory.UnfinishedImports()->empty());
  const FoundCheckpoint found = *directory.FindNewest("tiny");
  EXPECT_EQ(found.newest->id(), "c");
  EXPECT_TRUE(found.skipped.empty());
  EXPECT_TRUE(Retain(files, kBefore));
  EXPECT_TRUE(FilesOf(files, "gone").empty());
}

// A damaged mark may name such files; files of other checkpoints stay.
TEST(RestoreMarksTest, ARemovalIsFinishedByTheNamesInItsMark) {
  simulation::SimulatedDirectory files("disk", 1);
  for (const char* name : {"gone.shard-00000-of-00001.0000.safetensors", "gone.given-up",
                           "b.shard-00000-of-00001.0000.safetensors"}) {
    ASSERT_TRUE(files.Create(name).ok());
  }
  ASSERT_TRUE(MarkRemoval(files, "gone",
                          {"gone.shard-00000-of-00001.0000.safetensors", "", "gone.given-up",
                           "b.shard-00000-of-00001.0000.safetensors", "../x.safetensors"})
                  .ok());
  CheckpointDirectory directory(files);
  // A checkpoint of this name cannot begin meanwhile.
  EXPECT_EQ(directory.CreateFile("gone", 1, 0, 1, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Retain(files, kBefore));
  EXPECT_THAT(*files.List(),
              ::testing::ElementsAre("b.shard-00000-of-00001.0000.safetensors", "gone.given-up"));
  EXPECT_TRUE(directory.CreateFile("gone", 1, 0, 1, 0).ok());
}

// A restore of it would be refused, so the newest that can be restored is another.
TEST(RestoreMarksTest, TheNewestIsNoneThatIsBeingRemoved) {
  simulation::SimulatedDirectory files("disk", 1);
  WriteThree(files);
  ASSERT_TRUE(MarkRemoval(files, "c", {}).ok());
  CheckpointDirectory directory(files);
  const FoundCheckpoint found = *directory.FindNewest("tiny");
  EXPECT_EQ(found.newest->id(), "b");
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_THAT(found.skipped[0].reason, HasSubstr("c.removing"));
}

// No restore uses a checkpoint with this mark, so it is not one of the two that are kept.
TEST(RestoreMarksTest, WhatIsBeingRemovedTakesNoPlaceOfThoseThatAreKept) {
  simulation::SimulatedDirectory files("/checkpoints", 1);
  WriteThree(files);
  const std::vector<std::string> named = FilesOf(files, "b");
  ASSERT_TRUE(MarkRemoval(files, "b", named).ok());
  CheckpointDirectory directory(files);
  const auto retained = directory.Retain("tiny", kKeep, {}, kBefore);
  ASSERT_TRUE(retained.ok()) << retained.status();
  EXPECT_THAT(retained->kept, ::testing::ElementsAre("c", "a"));
  EXPECT_TRUE(IsThere(files));
  // The checkpoint is removed once there are two newer ones.
  ASSERT_TRUE(WriteCheckpoint(directory, "d", 30).ok());
  ASSERT_TRUE(Retain(files, {1, 30}));
  EXPECT_THAT(FilesOf(files, "b"), ::testing::IsEmpty());
  EXPECT_THAT(FilesOf(files, "a"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace kaon::checkpoint
