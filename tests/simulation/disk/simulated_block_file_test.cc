#include "tests/simulation/disk/simulated_block_file.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/conformance/block_file_conformance.h"

namespace kaon::simulation {
namespace {

class Factory {
 public:
  std::unique_ptr<disk::BlockFile> Open(uint64_t size_bytes) {
    auto file = SimulatedBlockFile::Open(directory_, "state", size_bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

 private:
  SimulatedDirectory directory_{"/nvme", 1};
};

}  // namespace
}  // namespace kaon::simulation

namespace kaon::disk {
INSTANTIATE_TYPED_TEST_SUITE_P(SimulatedDisk, BlockFileConformance, simulation::Factory);
}  // namespace kaon::disk

namespace kaon::simulation {
namespace {

TEST(SimulatedBlockFileTest, APowerCutKeepsWhatWasSyncedAndTearsTheRest) {
  int kept = 0;
  int torn = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedDirectory directory("/nvme", seed);
    disk::Blocks durable(4);
    disk::Blocks unsynced(4);
    durable.Fill(1);
    unsynced.Fill(2);
    {
      const auto file = *SimulatedBlockFile::Open(directory, "state", 8 * disk::kBlockBytes);
      file->Write(0, durable.span(), [](const absl::Status& status) { ASSERT_TRUE(status.ok()); });
      ASSERT_TRUE(file->Sync().ok());
      file->Write(4 * disk::kBlockBytes, unsynced.span(),
                  [](const absl::Status& status) { ASSERT_TRUE(status.ok()); });
    }
    directory.CutPower();
    const auto file = *SimulatedBlockFile::Open(directory, "state", 8 * disk::kBlockBytes);
    disk::Blocks read(4);
    file->Read(0, read.span(), [](const absl::Status& status) { ASSERT_TRUE(status.ok()); });
    EXPECT_EQ(read.span(), durable.span());
    file->Read(4 * disk::kBlockBytes, read.span(),
               [](const absl::Status& status) { ASSERT_TRUE(status.ok()); });
    ++(read.span() == unsynced.span() ? kept : torn);
  }
  EXPECT_GT(torn, 0) << kept;
}

}  // namespace
}  // namespace kaon::simulation
