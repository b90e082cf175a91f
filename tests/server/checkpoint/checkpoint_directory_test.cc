#include "server/checkpoint/checkpoint_directory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "server/checkpoint/manifest_file.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/simulated_disk.h"

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

// P9: it exists only once its manifest is there.
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
                         " bytes long, expecting " + std::to_string(good.size()));
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
  Put("b.manifest", "kaon checkpoint 2\n" + good.substr(18));
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_EQ(reason_,
            "FAILED_PRECONDITION: manifest disk/b.manifest: begins with the line 'kaon checkpoint "
            "2', expecting 'kaon checkpoint 1'");
  Put("b.manifest", Get("a.manifest"));
  EXPECT_EQ(Newest(), "a [b]");
  EXPECT_EQ(reason_, "DATA_LOSS: manifest disk/b.manifest is of checkpoint 'a', expecting 'b'");
  // What is no checkpoint's is left alone.
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

// The header is checked against the manifest too: CRCs alone say only that nothing changed since.
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

TEST_F(CheckpointDirectoryTest, ALeftoverOfAnInterruptedCommitIsReplaced) {
  Put("a.manifest.tmp", std::string(100000, 'x'));
  Write("a", 10);
  EXPECT_EQ(Newest(), "a");
}

TEST_F(CheckpointDirectoryTest, RefusesIdsThatAreNoSafeNames) {
  for (const char* id : {"", "../a", "a/b", "A", "a.b"}) {
    EXPECT_EQ(directory_.CreateFile(id, 0, 1, 0).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(directory_.Load(id).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(directory_.RemoveUncommitted(id).code(), absl::StatusCode::kInvalidArgument);
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
  // Nothing changes when it is asked again.
  EXPECT_TRUE(directory_.Retain("tiny", 2)->removed.empty());
}

TEST_F(CheckpointDirectoryTest, RemovesOnlyWhatWasNeverFinished) {
  Write("a", 10);
  ASSERT_TRUE(WritePart(directory_, "a-2", 11, 0, TinyShards()).ok());
  EXPECT_EQ(directory_.RemoveUncommitted("a").message(),
            "checkpoint a is finished: disk/a.manifest");
  ASSERT_TRUE(directory_.RemoveUncommitted("a-2").ok());
  EXPECT_EQ(Newest(), "a");
  EXPECT_EQ(WritePart(directory_, "a", 10, 0, TinyShards()).status().code(),
            absl::StatusCode::kAlreadyExists);
  Write("a-2", 11);
  EXPECT_EQ(Newest(), "a-2");
}

}  // namespace
}  // namespace kaon::checkpoint
