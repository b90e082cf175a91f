#include "server/checkpoint/checkpoint_directory.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/checkpoint/manifest.h"
#include "server/disk/device_error.h"
#include "tests/server/checkpoint/damage.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/server/journal/hooked_directory.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

class CheckpointDirectoryTest : public testing::Test {
 protected:
  void Write(const std::string& id, uint64_t position, const TinyShards& shards = TinyShards()) {
    const absl::Status status = WriteCheckpoint(directory_, id, position, shards).status();
    ASSERT_TRUE(status.ok()) << status;
  }

  void Put(const std::string& name, absl::string_view bytes) {
    const absl::Status removed = disk_.Remove(name);
    ASSERT_TRUE(removed.ok() || absl::IsNotFound(removed)) << removed;
    ASSERT_TRUE(disk_.Create(name).value()->Write(0, {bytes}).ok());
  }
  std::string Get(const std::string& name) {
    const std::unique_ptr<disk::File> file = disk_.Open(name).value();
    std::string bytes(*file->Size(), '\0');
    EXPECT_EQ(*file->Read(0, bytes.size(), bytes.data()), bytes.size());
    return bytes;
  }

  static TinyShards OfAttempt(uint64_t number) {
    TinyShards shards;
    shards.attempt = number;
    return shards;
  }

  static TinyShards OfTimeline(uint64_t timeline) {
    TinyShards shards;
    shards.timeline = timeline;
    return shards;
  }

  // "none", or the newest one's id; then, in brackets, those that were skipped.
  std::string Newest() {
    const FoundCheckpoint found = directory_.FindNewest("tiny").value();
    std::string text = found.newest.has_value() ? found.newest->id() : "none";
    for (const SkippedCheckpoint& skipped : found.skipped) {
      text += " [" + skipped.id + "]";
      reason_ = skipped.reason;
    }
    return text;
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
  // Why the last one was skipped.
  std::string reason_;
};

// A checkpoint that cannot be read now may be whole. Falling back to an older one would discard
// steps needlessly.
TEST_F(CheckpointDirectoryTest, NoOlderOneTakesThePlaceOfOneThatCannotBeRead) {
  Write("a", 10, {3, 32, 4});
  Write("b", 11, {3, 32, 4});
  uint64_t failed = 0;
  for (uint64_t operations = 0;; ++operations) {
    disk_.FailAfter(operations);
    const absl::StatusOr<FoundCheckpoint> found = directory_.FindNewest("tiny");
    disk_.SetHealthy();
    if (found.ok()) {
      EXPECT_EQ(found->newest->id(), "b");
      EXPECT_TRUE(found->skipped.empty());
      break;
    }
    EXPECT_TRUE(disk::IsDeviceError(found.status())) << found.status();
    ++failed;
  }
  EXPECT_GE(failed, 7u);
}

TEST_F(CheckpointDirectoryTest, FindsWhatWasCommitted) {
  EXPECT_EQ(Newest(), "none");
  Write("a", 10, {3, 32, 4});
  EXPECT_EQ(Newest(), "a");
  EXPECT_EQ(*directory_.List(), (std::vector<std::string>{"a"}));
  const absl::StatusOr<v1::CheckpointManifest> manifest = directory_.Verify("a");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->position(), 10u);
  EXPECT_EQ(manifest->registration().SerializeAsString(), TinyRegistration().SerializeAsString());
  for (const v1::CheckpointTensor& tensor : manifest->tensors()) {
    const auto file = directory_.Open(manifest->files(static_cast<int>(tensor.file()))).value();
    const std::string expected = TinyBytes(10, tensor.parameter_id(), tensor.role(), tensor.dtype(),
                                           tensor.first_element(), tensor.num_elements());
    std::string read(expected.size(), '\0');
    ASSERT_TRUE(file->Read(tensor.offset(), read.size(), read.data()).ok());
    EXPECT_EQ(read, expected);
  }
}

TEST_F(CheckpointDirectoryTest, TheHighestTimelineThenPositionIsNewest) {
  Write("z", 10);
  Write("a", 12);
  Write("m", 11);
  EXPECT_EQ(Newest(), "a");
  // The same position twice: one of them, always the same.
  Write("b", 12);
  EXPECT_EQ(Newest(), "b");
}

// P9: a checkpoint exists only once its manifest does.
TEST_F(CheckpointDirectoryTest, WithoutAManifestItDoesNotExist) {
  Write("a", 10);
  ASSERT_TRUE(WritePart(directory_, "b", 11, 0, TinyShards()).ok());
  ASSERT_TRUE(WritePart(directory_, "b", 11, 1, TinyShards()).ok());
  Put("c.manifest.tmp", "...");
  EXPECT_EQ(Newest(), "a [b] [c]");
  EXPECT_EQ(reason_, "it has no manifest: it was never finished");
  EXPECT_EQ(directory_.Verify("b").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointDirectoryTest, FallsBackToTheNewestGoodOneAndNamesTheBad) {
  Write("a", 10);
  Write("b", 11);
  const std::string name = CheckpointDirectory::FileName("b", 1, 2, 0);
  const std::string good = Get(name);
  ASSERT_TRUE(disk_.FlipBit(name, (good.size() - 1) * 8).ok());
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_TRUE(absl::StrContains(reason_, "file disk/" + name + ": fragment 0 (bytes 0 to"))
      << reason_;
  Put(name, good.substr(0, good.size() - 1));
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_EQ(reason_, "DATA_LOSS: file disk/" + name + " is " + std::to_string(good.size() - 1) +
                         " bytes long, expecting " + std::to_string(good.size()) +
                         "; it is of step 9, position 11");
  ASSERT_TRUE(disk_.Remove(name).ok());
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_TRUE(absl::StartsWith(reason_, "DATA_LOSS: file " + name + " of ")) << reason_;
  EXPECT_TRUE(absl::StrContains(reason_, " is missing: ")) << reason_;
  Put(name, good);
  EXPECT_EQ(Newest(), "b");
}

TEST_F(CheckpointDirectoryTest, SkipsManifestsThatAreNotAsTheyWere) {
  Write("a", 10);
  Write("b", 11);
  const std::string good = Get("b.manifest");
  Put("b.manifest", good.substr(0, good.size() / 2));
  EXPECT_EQ(Newest(), "a [b]");
  Put("b.manifest", "kaon checkpoint 1\n" + good.substr(18));
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_EQ(reason_,
            "FAILED_PRECONDITION: manifest disk/b.manifest: begins with the line 'kaon checkpoint "
            "1', expecting 'kaon checkpoint 2'");
  Put("b.manifest", Get("a.manifest"));
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_EQ(reason_, "DATA_LOSS: manifest disk/b.manifest is of checkpoint 'a', expecting 'b'");
  // Files of no checkpoint are left alone.
  Put("b.manifest", good);
  Put("notes", "");
  Put("B.manifest", "");
  EXPECT_EQ(Newest(), "b");
}

TEST_F(CheckpointDirectoryTest, SkipsCheckpointsOfOtherJobs) {
  Write("a", 10);
  const FoundCheckpoint found = directory_.FindNewest("large").value();
  EXPECT_FALSE(found.newest.has_value());
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.skipped[0].reason, "it is of job 'tiny', expecting 'large'");
}

TEST_F(CheckpointDirectoryTest, CommitsOnlyWhatIsThereAndAsReported) {
  std::vector<v1::CheckpointPart> parts = {*WritePart(directory_, "a", 10, 0, TinyShards()),
                                           *WritePart(directory_, "a", 10, 1, TinyShards())};
  const v1::CheckpointManifest manifest = *BuildManifest(TinyFacts("a", 10), parts);
  const std::string name = manifest.files(1).name();
  const std::string good = Get(name);
  ASSERT_TRUE(disk_.Remove(name).ok());
  EXPECT_EQ(directory_.Commit(manifest).code(), absl::StatusCode::kNotFound);
  Put(name, good.substr(1));
  EXPECT_EQ(directory_.Commit(manifest).code(), absl::StatusCode::kDataLoss);
  Put(name, Get(manifest.files(0).name()));
  EXPECT_EQ(directory_.Commit(manifest).code(), absl::StatusCode::kDataLoss);
  // The file is as reported, but its tensors are not.
  v1::CheckpointManifest other = manifest;
  other.mutable_files(1)->set_sha256(manifest.files(0).sha256());
  *other.mutable_files(1)->mutable_fragment_crc32c() = manifest.files(0).fragment_crc32c();
  other.mutable_files(1)->set_size(manifest.files(0).size());
  EXPECT_FALSE(directory_.Commit(other).ok());
  Put(name, good);
  ASSERT_EQ(directory_.Commit(manifest), absl::OkStatus());
  EXPECT_EQ(directory_.Commit(manifest).code(), absl::StatusCode::kAlreadyExists);
  other = manifest;
  other.mutable_tensors()->RemoveLast();
  EXPECT_EQ(directory_.Commit(other).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Newest(), "a");
}

// The header is checked against the manifest, too; CRCs only show that nothing changed since the
// write.
TEST_F(CheckpointDirectoryTest, NamesATensorThatTheHeaderHasOtherwise) {
  v1::CheckpointPart part = *WritePart(directory_, "a", 10, 0, {1});
  for (v1::CheckpointTensor& tensor : *part.mutable_tensors()) {
    // exp_avg and exp_avg_sq of h.b have the same shape and type.
    if (tensor.role() == "exp_avg") {
      tensor.set_role("exp_avg_sq");
    } else if (tensor.role() == "exp_avg_sq") {
      tensor.set_role("exp_avg");
    }
  }
  const absl::Status status = directory_.Commit(*BuildManifest(TinyFacts("a", 10), {part}));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "file disk/a.shard-00000-of-00001.0000.safetensors has tensor 'exp_avg:h.b' F32 at 0 "
            "to 280, the manifest has 'exp_avg_sq:h.b' F32 at 0 to 280");
}

// The remains of one attempt never block another.
TEST_F(CheckpointDirectoryTest, AttemptsHaveNoFileInCommon) {
  ASSERT_TRUE(WritePart(directory_, "a", 10, 0, OfAttempt(1)).ok());
  Put("a.0000000000000001.manifest.tmp", "half");
  Write("a", 11, OfAttempt(0xabc));
  EXPECT_EQ(directory_.Load("a")->files(1).name(),
            "a.0000000000000abc.shard-00001-of-00002.0000.safetensors");
  EXPECT_EQ(Newest(), "a");
  // It is a checkpoint now, whatever the other coordinator does.
  EXPECT_EQ(WriteCheckpoint(directory_, "a", 12, OfAttempt(2)).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(directory_.Verify("a")->position(), 11u);
}

TEST_F(CheckpointDirectoryTest, PartsOfTwoAttemptsAreNoCheckpoint) {
  const std::vector<v1::CheckpointPart> parts = {*WritePart(directory_, "a", 10, 0, OfAttempt(1)),
                                                 *WritePart(directory_, "a", 10, 1, OfAttempt(2))};
  const absl::Status status = directory_.Commit(*BuildManifest(TinyFacts("a", 10), parts));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "checkpoint a: file a.0000000000000002.shard-00001-of-00002.0000.safetensors is of "
            "another attempt than a.0000000000000001.shard-00000-of-00002.0000.safetensors");
}

TEST_F(CheckpointDirectoryTest, NamesTheAttemptsThatNoManifestNames) {
  Write("a", 10, OfAttempt(1));
  ASSERT_TRUE(WritePart(directory_, "a", 11, 0, OfAttempt(2)).ok());
  ASSERT_TRUE(WritePart(directory_, "b", 11, 0, OfAttempt(3)).ok());
  // An import, and a manifest that may name anything.
  ASSERT_TRUE(WritePart(directory_, "c", 11, 0, TinyShards()).ok());
  Write("d", 12, OfAttempt(4));
  ASSERT_TRUE(disk_.FlipBit("d.manifest", 300 * 8).ok());
  ASSERT_TRUE(WritePart(directory_, "d", 11, 0, OfAttempt(5)).ok());
  std::vector<std::string> stems;
  const std::vector<CheckpointAttempt> unfinished = directory_.Unfinished().value();
  for (const CheckpointAttempt& attempt : unfinished) {
    stems.push_back(CheckpointDirectory::Stem(attempt.id, attempt.number));
  }
  EXPECT_EQ(stems, (std::vector<std::string>{"a.0000000000000002", "b.0000000000000003"}));
}

TEST_F(CheckpointDirectoryTest, RemovesAnAttemptUnlessAManifestNamesItOrMay) {
  Write("a", 10, OfAttempt(1));
  ASSERT_TRUE(WritePart(directory_, "a", 11, 0, OfAttempt(2)).ok());
  Put("a.0000000000000002.manifest.tmp", "half");
  const size_t files = disk_.List()->size();
  for (const auto remove : {&CheckpointDirectory::RemoveAttempt, &CheckpointDirectory::GiveUp}) {
    EXPECT_EQ((directory_.*remove)({"a", 1}), absl::OkStatus());
    EXPECT_EQ(disk_.List()->size(), files);
  }
  EXPECT_EQ(directory_.RemoveAttempt({"a", 2}), absl::OkStatus());
  EXPECT_EQ(disk_.List()->size(), files - 2);
  ASSERT_TRUE(WritePart(directory_, "a", 11, 0, OfAttempt(3)).ok());
  ASSERT_TRUE(disk_.FlipBit("a.manifest", 300 * 8).ok());
  for (const auto remove : {&CheckpointDirectory::RemoveAttempt, &CheckpointDirectory::GiveUp}) {
    EXPECT_EQ((directory_.*remove)({"a", 3}).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(disk_.Open(CheckpointDirectory::FileName("a.0000000000000003", 0, 2, 0)).ok());
  }
}

// Action of one of two coordinators on attempt 1 of checkpoint a, whose manifest is `manifest`. The
// one that commits reports the result.
using Act =
    std::function<void(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest,
                       std::optional<absl::Status>& committed)>;

void Commit(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest,
            std::optional<absl::Status>& committed) {
  committed = directory.Commit(manifest);
}

void GiveUp(CheckpointDirectory& directory, const v1::CheckpointManifest&,
            std::optional<absl::Status>&) {
  EXPECT_EQ(directory.GiveUp({"a", 1}), absl::OkStatus());
}

struct Outcomes {
  int committed = 0;
  int refused = 0;
};

// Runs `one`, and `other` at each of its operations in turn. The result is a whole checkpoint or
// none, and nothing is left of a failed attempt.
Outcomes TryAtEachOperation(const Act& one, const Act& other) {
  Outcomes outcomes;
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    simulation::SimulatedDirectory disk("disk", 1);
    CheckpointDirectory of_other(disk);
    journal::HookedDirectory hooked(disk);
    CheckpointDirectory of_one(hooked);
    TinyShards shards;
    shards.attempt = 1;
    const v1::CheckpointManifest manifest = *BuildManifest(
        TinyFacts("a", 10),
        {*WritePart(of_other, "a", 10, 0, shards), *WritePart(of_other, "a", 10, 1, shards)});
    int operations = 0;
    std::optional<absl::Status> committed;
    hooked.set_hook([&](absl::string_view, const std::string&) {
      if (operations++ == at) other(of_other, manifest, committed);
      return absl::OkStatus();
    });
    one(of_one, manifest, committed);
    hooked.set_hook(nullptr);
    if (!committed.has_value()) return outcomes;
    if (committed->ok()) {
      EXPECT_TRUE(of_other.Verify("a").ok());
      EXPECT_EQ(disk.List()->size(), 3u);
      ++outcomes.committed;
    } else {
      EXPECT_EQ(*disk.List(), std::vector<std::string>());
      ++outcomes.refused;
    }
    if (operations <= at) return outcomes;
  }
}

// A coordinator that was frozen before or within its commit wakes up, and finds that another one
// gave the attempt up.
TEST_F(CheckpointDirectoryTest, AnAttemptThatIsGivenUpWhileItIsCommittedIsWholeOrGone) {
  const Outcomes outcomes = TryAtEachOperation(Commit, GiveUp);
  EXPECT_GE(outcomes.committed, 2);
  EXPECT_GE(outcomes.refused, 4);
}

TEST_F(CheckpointDirectoryTest, AnAttemptThatIsCommittedWhileItIsGivenUpIsWholeOrGone) {
  const Outcomes outcomes = TryAtEachOperation(GiveUp, Commit);
  EXPECT_GE(outcomes.committed, 1);
  EXPECT_GE(outcomes.refused, 5);
}

TEST_F(CheckpointDirectoryTest, RefusesIdsThatAreNoSafeNames) {
  for (const char* id : {"", "../a", "a/b", "A", "a.b"}) {
    EXPECT_EQ(directory_.CreateFile(id, 1, 0, 1, 0).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(directory_.Load(id).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(directory_.RemoveAttempt({id, 1}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(directory_.GiveUp({id, 1}).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(CheckpointDirectoryTest, KeepsTheNewestGoodOnes) {
  for (const char* id : {"a", "b", "c", "d"}) Write(id, 10 + static_cast<uint64_t>(*id));
  EXPECT_EQ(directory_.Retain("tiny", 1).status().message(),
            "checkpoints to keep: 1, expecting at least 2");
  const absl::StatusOr<RetainedCheckpoints> retained = directory_.Retain("tiny", 3);
  ASSERT_TRUE(retained.ok()) << retained.status();
  EXPECT_EQ(retained->kept, (std::vector<std::string>{"d", "c", "b"}));
  EXPECT_EQ(retained->removed, (std::vector<std::string>{"a"}));
  const std::vector<std::string> names = disk_.List().value();
  for (const std::string& name : names) EXPECT_FALSE(absl::StartsWith(name, "a.")) << name;
  EXPECT_EQ(*directory_.List(), (std::vector<std::string>{"b", "c", "d"}));
}

TEST_F(CheckpointDirectoryTest, ABadOneCountsForNothingAndIsNeverRemoved) {
  for (const char* id : {"a", "b", "c", "d", "e"}) Write(id, 10 + static_cast<uint64_t>(*id));
  ASSERT_TRUE(disk_.FlipBit(CheckpointDirectory::FileName("e", 0, 2, 0), 5 * 8).ok());
  ASSERT_TRUE(disk_.FlipBit("a.manifest", 300 * 8).ok());
  ASSERT_TRUE(WritePart(directory_, "f", 300, 0, TinyShards()).ok());
  const RetainedCheckpoints retained = *directory_.Retain("tiny", 2);
  EXPECT_EQ(retained.kept, (std::vector<std::string>{"d", "c"}));
  EXPECT_EQ(retained.removed, (std::vector<std::string>{"b"}));
  ASSERT_EQ(retained.skipped.size(), 3u);
  EXPECT_EQ(*directory_.List(), (std::vector<std::string>{"a", "c", "d", "e"}));
  EXPECT_TRUE(disk_.Open(CheckpointDirectory::FileName("f", 0, 2, 0)).ok());
  // A second call changes nothing.
  EXPECT_TRUE(directory_.Retain("tiny", 2)->removed.empty());
}

// However they went bad and wherever, older than the good ones and newer.
TEST_F(CheckpointDirectoryTest, RetentionLeavesEveryByteOfDamagedOnes) {
  uint64_t position = 10;
  const auto write = [&](const std::string& id) {
    ++position;
    Write(id, position, OfAttempt(position));
    return directory_.Load(id)->files(1).name();
  };
  const auto write_damaged = [&](absl::string_view when) {
    for (const Damage damage : kEveryDamage) {
      const std::string id = absl::StrCat(when, "-", NameOf(damage));
      DamageFile(disk_, write(id + "-file"), damage);
      write(id + "-manifest");
      DamageFile(disk_, CheckpointDirectory::ManifestName(id + "-manifest"), damage);
    }
  };
  write_damaged("older");
  for (const char* id : {"a", "b", "c"}) write(id);
  write_damaged("newer");
  std::map<std::string, std::string> left = FilesOf(disk_);
  const std::vector<std::string> names = disk_.List().value();
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "a.")) left.erase(name);
  }
  const RetainedCheckpoints retained = directory_.Retain("tiny", 2).value();
  EXPECT_EQ(retained.kept, (std::vector<std::string>{"c", "b"}));
  EXPECT_EQ(retained.removed, (std::vector<std::string>{"a"}));
  EXPECT_EQ(retained.skipped.size(), 2 * 2 * kEveryDamage.size());
  EXPECT_TRUE(FilesOf(disk_) == left);
}

// Newer ones of the timeline that was left for it do not stand for it.
TEST_F(CheckpointDirectoryTest, KeepsWhatTheJobWentOnFromUntilTwoWereTakenSince) {
  for (const char* id : {"a", "b", "c"}) Write(id, 10 + static_cast<uint64_t>(*id));
  const std::vector<RestoredCheckpoint> restored = {{"a", 2}};
  EXPECT_TRUE(directory_.Retain("tiny", 2, restored)->removed.empty());
  Write("d", 300, OfTimeline(2));
  EXPECT_EQ(directory_.Retain("tiny", 2, restored)->removed, (std::vector<std::string>{"b"}));
  // A bad one is none.
  Write("e", 301, OfTimeline(2));
  const std::string name = CheckpointDirectory::FileName("e", 0, 2, 0);
  ASSERT_TRUE(disk_.FlipBit(name, 8 * Get(name).size() - 1).ok());
  EXPECT_TRUE(directory_.Retain("tiny", 2, restored)->removed.empty());
  EXPECT_EQ(*directory_.List(), (std::vector<std::string>{"a", "c", "d", "e"}));
  Write("f", 302, OfTimeline(2));
  EXPECT_EQ(directory_.Retain("tiny", 2, restored)->removed, (std::vector<std::string>{"c", "a"}));
}

// Retention removes only the checkpoint, and no attempt that may be running.
TEST_F(CheckpointDirectoryTest, RetentionLeavesOtherAttemptsAlone) {
  for (const char* id : {"a", "b", "c"}) Write(id, 10 + static_cast<uint64_t>(*id), OfAttempt(1));
  ASSERT_TRUE(WritePart(directory_, "a", 300, 0, OfAttempt(2)).ok());
  EXPECT_EQ(directory_.Retain("tiny", 2)->removed, (std::vector<std::string>{"a"}));
  EXPECT_FALSE(disk_.Open(CheckpointDirectory::FileName("a.0000000000000001", 0, 2, 0)).ok());
  EXPECT_TRUE(disk_.Open(CheckpointDirectory::FileName("a.0000000000000002", 0, 2, 0)).ok());
}

}  // namespace
}  // namespace kaon::checkpoint
