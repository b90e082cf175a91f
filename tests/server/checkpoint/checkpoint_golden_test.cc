// Every later version loads a checkpoint that version 2 wrote (T20). A checkpoint of version 1,
// whose digests mean something else (ADR 0027), is refused by that name. The files in golden/ are
// WriteCheckpoint(directory, "vN", 10, {1}) of version N, and are never written again. The file of
// tensors is the one that version 1 wrote; version 2 did not change its format.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/state_tensors.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

constexpr char kFolder[] = "tests/server/checkpoint/golden/";

void Load(const std::string& name, disk::Directory& directory) {
  std::ifstream stream(kFolder + name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  ASSERT_FALSE(bytes.empty()) << name;
  ASSERT_TRUE(directory.Create(name).value()->Write(0, {bytes}).ok());
}

TEST(CheckpointGoldenTest, RefusesWhatVersion1Wrote) {
  simulation::SimulatedDirectory disk("disk", 1);
  Load("v1.manifest", disk);
  CheckpointDirectory directory(disk);
  const FoundCheckpoint found = directory.FindNewest("tiny").value();
  EXPECT_FALSE(found.newest.has_value());
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.skipped[0].reason,
            "FAILED_PRECONDITION: manifest disk/v1.manifest: begins with the line 'kaon checkpoint "
            "1', expecting 'kaon checkpoint 2'");
}

TEST(CheckpointGoldenTest, LoadsWhatVersion2Wrote) {
  simulation::SimulatedDirectory disk("disk", 1);
  Load("v2.manifest", disk);
  Load(CheckpointDirectory::FileName("v2", 0, 1, 0), disk);
  CheckpointDirectory directory(disk);
  // Its bytes are any, so that some values are not finite; the rest of it was checked before them.
  const FoundCheckpoint found = directory.FindNewest("tiny").value();
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_NE(found.skipped[0].reason.find("has values that are not finite"), std::string::npos);
  const v1::CheckpointManifest manifest = directory.Load("v2").value();
  EXPECT_EQ(manifest.position(), 10u);
  EXPECT_EQ(manifest.step(), 8u);
  EXPECT_EQ(manifest.weights_digest(), 10000u);
  EXPECT_EQ(manifest.files(0).build(), "test");
  CheckpointReader reader(directory, manifest);
  const std::vector<StateTensor> tensors = StateTensorsOf(manifest.registration()).value();
  EXPECT_EQ(tensors.size(), 9u);
  for (const StateTensor& tensor : tensors) {
    const std::string expected =
        TinyBytes(10, tensor.parameter_id, tensor.role, tensor.dtype, 0, tensor.num_elements, 0xff);
    std::string read(expected.size(), '\0');
    ASSERT_TRUE(
        reader.Read(tensor.parameter_id, tensor.role, 0, tensor.num_elements, absl::MakeSpan(read))
            .ok());
    EXPECT_EQ(read, expected) << tensor.role;
  }
}

}  // namespace
}  // namespace kaon::checkpoint
