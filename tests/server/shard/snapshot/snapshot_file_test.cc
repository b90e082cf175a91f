#include "server/shard/snapshot/snapshot_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

constexpr char kGolden[] = "tests/server/shard/snapshot/golden/snapshot.meta";

// Returns a snapshot of the shard of plans.h with its initial weights.
Snapshot MakeSnapshot() {
  simulation::SimulatedDirectory disk("/d", 1);
  SnapshotDirectory directory(disk, kSnapshotId);
  DrivenShard shard;
  shard.Load();
  EXPECT_TRUE(WriteSnapshot(shard, directory).ok());
  return *directory.Load(2);
}

std::string WithSha256(const std::string& bytes) { return bytes + checkpoint::Sha256(bytes); }

void ExpectRefused(const std::string& bytes, absl::StatusCode code, const std::string& words) {
  const absl::Status status = ParseSnapshot("/d/x.meta", bytes).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/d/x.meta") &&
              absl::StrContains(status.message(), words))
      << status;
}

TEST(SnapshotFileTest, GivesBackWhatWasWritten) {
  const Snapshot snapshot = MakeSnapshot();
  const absl::StatusOr<Snapshot> read = ParseSnapshot("x", FormatSnapshot(snapshot));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->directory == kSnapshotId);
  EXPECT_EQ(read->position(), 2u);
  EXPECT_EQ(read->facts.promised.incarnation_low(), 13u);
  EXPECT_EQ(read->facts.newest_generation, 2u);
  EXPECT_EQ(read->facts.num_shards, 1u);
  EXPECT_EQ(read->facts.state.SerializeAsString(), snapshot.facts.state.SerializeAsString());
  EXPECT_EQ(read->part.SerializeAsString(), snapshot.part.SerializeAsString());
}

// T20: files of version 2 stay readable for ever. The file is never written again.
TEST(SnapshotFileTest, ReadsWhatVersion2Wrote) {
  std::ifstream stream(kGolden, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const absl::StatusOr<Snapshot> snapshot = ParseSnapshot(kGolden, bytes);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(FormatSnapshot(*snapshot), bytes);
  EXPECT_TRUE(snapshot->directory == kSnapshotId);
  EXPECT_EQ(snapshot->position(), 2u);
  EXPECT_EQ(snapshot->facts.promised.counter(), 1u);
  EXPECT_EQ(snapshot->facts.state.registration().definition().name(), "gpt2");
  EXPECT_EQ(snapshot->part.tensors_size(), 6);
}

TEST(SnapshotFileTest, RefusesAnotherVersionNamingBoth) {
  std::string bytes = FormatSnapshot(MakeSnapshot());
  bytes[std::string("kaon snapshot ").size()] = '1';
  ExpectRefused(bytes, absl::StatusCode::kFailedPrecondition,
                "begins with the line 'kaon snapshot 1', expecting 'kaon snapshot 2'");
}

TEST(SnapshotFileTest, RefusesFieldsThatItDoesNotKnow) {
  Snapshot snapshot = MakeSnapshot();
  snapshot.facts.state.GetReflection()
      ->MutableUnknownFields(&snapshot.facts.state)
      ->AddVarint(99, 1);
  ExpectRefused(FormatSnapshot(snapshot), absl::StatusCode::kFailedPrecondition,
                "bytes of fields that this version does not know");
}

TEST(SnapshotFileTest, RefusesEveryCutAndEveryFlippedBit) {
  const std::string bytes = FormatSnapshot(MakeSnapshot());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ExpectRefused(bytes.substr(0, size), absl::StatusCode::kDataLoss, "");
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(ParseSnapshot("x", flipped).ok()) << bit;
  }
}

TEST(SnapshotFileTest, RefusesLengthsThatAreNotTheFiles) {
  const std::string bytes = FormatSnapshot(MakeSnapshot());
  std::string longer = bytes.substr(0, bytes.size() - 32);
  longer[16 + 8 * 8] += 1;
  ExpectRefused(WithSha256(longer), absl::StatusCode::kDataLoss, "bytes long, there are");
}

// The checksums are right, but the content is impossible.
TEST(SnapshotFileTest, RefusesWhatCannotBeTrueNamingBothValues) {
  const auto refused = [](const std::function<void(Snapshot&)>& change, const std::string& words) {
    Snapshot snapshot = MakeSnapshot();
    change(snapshot);
    ExpectRefused(FormatSnapshot(snapshot), absl::StatusCode::kDataLoss, words);
  };
  refused([](Snapshot& s) { s.part.set_position(3); },
          "its tensors are of position 3, the rest of 2");
  refused([](Snapshot& s) { s.part.set_shard(1); }, "its tensors are of shard 1, the rest of 0");
  refused([](Snapshot& s) { s.part.set_timeline(2); },
          "its tensors are of timeline 2, the rest of 1");
  refused([](Snapshot& s) { s.facts.state.set_weights_loaded(false); },
          "is of shard 0 of 1, weights_loaded 0");
  refused([](Snapshot& s) { s.part.mutable_tensors()->RemoveLast(); }, "is not in it");
  refused([](Snapshot& s) { *s.part.add_tensors() = s.part.tensors(0); },
          "is not of this shard, or there twice");
  refused([](Snapshot& s) { s.part.mutable_tensors(0)->set_num_elements(3); }, "is kept as");
  refused([](Snapshot& s) { s.part.mutable_tensors(0)->set_dtype(v1::STATE_DTYPE_INT8); },
          "is kept as");
  refused([](Snapshot& s) { s.part.mutable_tensors(0)->set_offset(~uint64_t{0}); },
          "beyond its end");
  refused([](Snapshot& s) { s.part.mutable_tensors(0)->set_file(7); }, "beyond its end");
  refused([](Snapshot& s) { s.facts.state.mutable_registration()->clear_placement(); },
          "placement of 0 parameters");
}

}  // namespace
}  // namespace kaon::shard
