#include "server/disk/system_block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"
#include "tests/testing/scratch_folder.h"

namespace kaon::disk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSize = 4 * SystemBlockFile::kPieceBytes;
alignas(kBlockBytes) std::byte memory[kSize];

// Transfers nothing: a test gives the results of its system calls.
class ScriptedBlockFile final : public SystemBlockFile {
 public:
  using SystemBlockFile::End;
  using SystemBlockFile::OnResult;
  using SystemBlockFile::Piece;

  explicit ScriptedBlockFile(std::unique_ptr<const ReservedFile> file)
      : SystemBlockFile(std::move(file)) {}

  std::vector<Piece> started;

 private:
  void Start(std::vector<Piece> pieces) override { started = std::move(pieces); }
};

class SystemBlockFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = ReservedFile::Open(folder_ / "state", kSize);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = std::make_unique<ScriptedBlockFile>(*std::move(file));
  }
  std::vector<ScriptedBlockFile::Piece>& Read(uint64_t offset, uint64_t bytes) {
    file_->Read(offset, {memory, bytes}, [this](const absl::Status& status) {
      ++num_done_;
      status_ = status;
    });
    return file_->started;
  }

  const testing::ScratchFolder folder_;
  std::unique_ptr<ScriptedBlockFile> file_;
  int num_done_ = 0;
  absl::Status status_;
};

TEST_F(SystemBlockFileTest, CutsAnOperationIntoPiecesThatCoverIt) {
  const uint64_t bytes = 2 * SystemBlockFile::kPieceBytes + kBlockBytes;
  const auto& pieces = Read(kBlockBytes, bytes);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].memory.size(), SystemBlockFile::kPieceBytes);
  EXPECT_EQ(pieces[2].memory.size(), kBlockBytes);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pieces[i].offset, kBlockBytes + i * SystemBlockFile::kPieceBytes);
    EXPECT_EQ(pieces[i].memory.data(), memory + i * SystemBlockFile::kPieceBytes);
  }
}

TEST_F(SystemBlockFileTest, EndsWithTheLastPieceAndTheFirstError) {
  const auto& pieces = Read(0, kSize);
  ASSERT_EQ(pieces.size(), 4u);
  file_->End(pieces[2], absl::OkStatus());
  file_->End(pieces[0], absl::DataLossError("first"));
  file_->End(pieces[3], absl::DataLossError("second"));
  EXPECT_EQ(num_done_, 0);
  file_->End(pieces[1], absl::OkStatus());
  EXPECT_EQ(num_done_, 1);
  EXPECT_EQ(status_.message(), "first");
}

TEST_F(SystemBlockFileTest, GoesOnAfterShortAndInterruptedCalls) {
  auto& piece = Read(kBlockBytes, 3 * kBlockBytes)[0];
  EXPECT_EQ(file_->OnResult(piece, -EINTR), std::nullopt);
  EXPECT_EQ(file_->OnResult(piece, -EAGAIN), std::nullopt);
  EXPECT_EQ(piece.offset, kBlockBytes);
  EXPECT_EQ(file_->OnResult(piece, 2 * kBlockBytes), std::nullopt);
  EXPECT_EQ(piece.offset, 3 * kBlockBytes);
  EXPECT_EQ(piece.memory.data(), memory + 2 * kBlockBytes);
  EXPECT_EQ(piece.memory.size(), kBlockBytes);
  EXPECT_EQ(file_->OnResult(piece, kBlockBytes), absl::OkStatus());
}

TEST_F(SystemBlockFileTest, NamesTheCallThePlaceAndTheError) {
  auto& piece = Read(kBlockBytes, kBlockBytes)[0];
  const absl::Status status = file_->OnResult(piece, -EIO).value();
  EXPECT_TRUE(IsDeviceError(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr(absl::StrCat("reading at offset ", kBlockBytes)),
                                      HasSubstr(file_->path()), HasSubstr("Input/output error")));
  piece.is_write = true;
  const absl::Status full = file_->OnResult(piece, -ENOSPC).value();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("writing at offset"));
}

TEST_F(SystemBlockFileTest, TakesTheEndOfTheFileForAFailureOfTheDevice) {
  auto& piece = Read(2 * kBlockBytes, kBlockBytes)[0];
  const absl::Status status = file_->OnResult(piece, 0).value();
  EXPECT_TRUE(IsDeviceError(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("ends at byte ", 2 * kBlockBytes)));
}

}  // namespace
}  // namespace kaon::disk
