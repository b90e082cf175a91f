#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/journal/journal_log.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

// Gradients in the snapshot are not read again, so damage to them does not matter. The chain is
// checked all the same.
TEST(JournalLogSnapshotTest, ReadsNoGradientThatIsInTheSnapshot) {
  const std::unique_ptr<disk::PosixDirectory> directory = TemporaryDirectory();
  const std::vector<float> values(300, 1.25f);
  uint64_t bytes = 0;
  {
    std::vector<std::string> found;
    const auto log = OpenLog(*directory, &found);
    ASSERT_TRUE(log.ok()) << log.status();
    for (uint64_t position = 1; position <= 10; ++position) {
      ASSERT_TRUE((*log)->Append(Slice(position, position, 3, values)).ok());
      ASSERT_TRUE((*log)->Append(Prepare(position, position)).ok());
      ASSERT_TRUE((*log)->Sync().ok());
      ASSERT_TRUE((*log)->Append(Decision(position)).ok());
    }
    bytes = (*log)->bytes();
  }
  const std::string path = directory->path() + "/" + SegmentName(1);
  const std::string whole = ReadFile(path);
  uint64_t gradient = 0;
  const auto header_at = [&](uint64_t offset) {
    return DecodeFrameHeader(absl::string_view(whole).substr(offset)).value();
  };
  while (header_at(gradient).type != FrameType::kGradient || header_at(gradient).position != 6) {
    gradient += FrameBytes(header_at(gradient).payload_bytes);
  }
  std::vector<uint64_t> read;
  uint64_t bytes_read = 0;
  const auto open = [&](uint64_t snapshot, uint64_t flip) {
    std::string damaged = whole;
    damaged[flip] = static_cast<char>(damaged[flip] ^ 1);
    WriteFile(path, damaged);
    read.clear();
    JournalLog::Options options;
    options.snapshot_position = snapshot;
    const auto opened = JournalLog::Open(*directory, options, [&](const Entry& entry) {
      const auto* slice = std::get_if<GradientSlice>(&entry);
      if (slice != nullptr) read.push_back(slice->position);
      return absl::OkStatus();
    });
    if (opened.ok()) bytes_read = (*opened)->found().bytes;
    return opened.status();
  };
  EXPECT_EQ(open(5, gradient + kFrameHeaderBytes).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(open(6, gradient + 40).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(open(6, gradient + kFrameHeaderBytes).ok());
  ASSERT_FALSE(read.empty());
  EXPECT_EQ(read.front(), 7u);
  EXPECT_EQ(bytes_read, bytes - 6 * FrameBytes(values.size() * sizeof(float)));
}

}  // namespace
}  // namespace kaon::journal
