#include "server/disk/remove_if_there.h"

#include <gtest/gtest.h>

#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::disk {
namespace {

TEST(RemoveIfThereTest, TheFileIsGoneAndOnlyAnErrorOfTheDiskIsToldOf) {
  simulation::SimulatedDirectory directory("disk", 1);
  ASSERT_TRUE(directory.Create("a").ok());
  EXPECT_EQ(RemoveIfThere(directory, "a"), absl::OkStatus());
  EXPECT_TRUE(directory.List()->empty());
  EXPECT_EQ(RemoveIfThere(directory, "a"), absl::OkStatus());
  ASSERT_TRUE(directory.Create("a").ok());
  directory.FailAfter(0);
  EXPECT_EQ(RemoveIfThere(directory, "a").code(), absl::StatusCode::kDataLoss);
  directory.SetHealthy();
  EXPECT_EQ(directory.List()->size(), 1u);
}

}  // namespace
}  // namespace kaon::disk
