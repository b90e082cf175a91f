#include "server/disk/patient_directory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::disk {
namespace {

class PatientDirectoryTest : public testing::Test {
 protected:
  PatientDirectoryTest() {
    auto disk = std::make_unique<simulation::SimulatedDirectory>("/d", 1);
    disk_ = disk.get();
    patient_ = std::make_unique<PatientDirectory>(
        std::move(disk), [this](const absl::Status& status) { return AwaitRoom(status); });
  }

  bool AwaitRoom(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    if (++waited_ < patience_) return true;
    disk_->SetUnbounded();
    return !gives_up_;
  }

  simulation::SimulatedDirectory* disk_ = nullptr;
  std::unique_ptr<PatientDirectory> patient_;
  int waited_ = 0;
  int patience_ = 3;
  bool gives_up_ = false;
};

TEST_F(PatientDirectoryTest, AWriteWaitsForRoomAndIsWhole) {
  const std::unique_ptr<File> file = patient_->Create("a").value();
  disk_->SetFreeBytes(100);
  const std::string bytes(5000, 'x');
  ASSERT_EQ(file->Write(0, {bytes}), absl::OkStatus());
  EXPECT_EQ(waited_, 3);
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  std::string read(6000, ' ');
  EXPECT_EQ(file->Read(0, read.size(), read.data()).value(), bytes.size());
  EXPECT_EQ(read.substr(0, bytes.size()), bytes);
  ASSERT_EQ(patient_->Rename("a", "b"), absl::OkStatus());
  EXPECT_EQ(*patient_->List(), std::vector<std::string>{"b"});
  EXPECT_EQ(patient_->Open("b").value()->Size().value(), bytes.size());
  EXPECT_EQ(patient_->Remove("a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(waited_, 3);
}

TEST_F(PatientDirectoryTest, WhoeverGivesUpGetsTheError) {
  gives_up_ = true;
  const std::unique_ptr<File> file = patient_->Create("a").value();
  disk_->SetFreeBytes(100);
  const std::string bytes(5000, 'x');
  EXPECT_EQ(file->Write(0, {bytes}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(waited_, 3);
}

TEST_F(PatientDirectoryTest, OtherErrorsAreNotTriedAgain) {
  const std::unique_ptr<File> file = patient_->Create("a").value();
  disk_->FailAfter(0);
  EXPECT_EQ(file->Write(0, {"x"}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(waited_, 0);
}

}  // namespace
}  // namespace kaon::disk
