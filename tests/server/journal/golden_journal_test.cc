// The journal of a data_dir of version 2, kept under golden/, stays readable for ever (T20). Its
// frames equal those of version 1; only the identity differs (ADR 0027).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/journal/history_file.h"
#include "server/journal/journal_start.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

constexpr char kGolden[] = "tests/server/journal/golden/";
constexpr uint64_t kSegmentBytes = 3000;
constexpr DirectoryId kId = {0x0123456789abcdef, 0xfedcba9876543210};

// Returns a copy of the golden journal that the test may change.
std::unique_ptr<disk::PosixDirectory> CopyOfGolden() {
  std::unique_ptr<disk::PosixDirectory> directory = TemporaryDirectory();
  for (const std::string name : {"identity", "durable", "journal-0000000000000001",
                                 "journal-000000000000000a", "journal-0000000000000013"}) {
    WriteFile(directory->path() + "/" + name, ReadFile(kGolden + name));
  }
  return directory;
}

// Returns the entries that were appended.
std::vector<std::string> GoldenEntries() {
  std::vector<std::string> entries = {Describe(Promise(3))};
  for (uint64_t position = 1; position <= 5; ++position) {
    std::vector<float> values(300, 0.0f);
    for (size_t i = 0; i < 100; ++i) values[i] = static_cast<float>(i * position) / 8;
    entries.push_back(Describe(Slice(position, position + 1, 0, values)));
    entries.push_back(Describe(Slice(position, position + 1, 1, {-1.5f, 0.0f, 3e-40f})));
    entries.push_back(Describe(Prepare(position, position + 1)));
    entries.push_back(Describe(Decision(position)));
  }
  return entries;
}

TEST(GoldenJournalTest, IsReadAsItWasWritten) {
  const std::unique_ptr<disk::PosixDirectory> directory = CopyOfGolden();
  std::vector<std::string> found;
  const absl::StatusOr<std::unique_ptr<JournalLog>> log = OpenLog(*directory, &found);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(found, GoldenEntries());
  EXPECT_EQ((*log)->found().torn_tail, "");
  EXPECT_EQ((*log)->bytes(), 18432u);
}

TEST(GoldenJournalTest, CanBeGoneOnWith) {
  const std::unique_ptr<disk::PosixDirectory> directory = CopyOfGolden();
  std::vector<std::string> found;
  absl::StatusOr<std::unique_ptr<JournalLog>> log = OpenLog(*directory, &found);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE((*log)->Append(Promise(9)).ok());
  ASSERT_TRUE(OpenLog(*directory, &found).ok());
  std::vector<std::string> expected = GoldenEntries();
  expected.push_back(Describe(Promise(9)));
  EXPECT_EQ(found, expected);
}

// The same journal without its first segment, and with the file that records this.
TEST(GoldenJournalTest, IsReadAsItWasTruncated) {
  const std::unique_ptr<disk::PosixDirectory> directory = CopyOfGolden();
  const std::string start = ReadFile(std::string(kGolden) + "start");
  WriteFile(directory->path() + "/start", start);
  ASSERT_TRUE(directory->Remove("journal-0000000000000001").ok());
  std::vector<std::string> found;
  History history;
  const absl::StatusOr<std::unique_ptr<JournalLog>> log =
      OpenLog(*directory, &found, kSegmentBytes, &history);
  ASSERT_TRUE(log.ok()) << log.status();
  const std::vector<std::string> all = GoldenEntries();
  ASSERT_EQ(found.size(), 14u);
  // It is of before there was the file `history`.
  EXPECT_EQ(PositionsIn(history), (std::vector<uint64_t>{2, 3, 4, 5}));
  EXPECT_EQ(found, std::vector<std::string>(all.end() - 14, all.end()));
  const absl::StatusOr<JournalStart> read = ReadStart(*directory, kId.Hash());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->sequence, 10u);
  EXPECT_EQ(read->position, 2u);
  ASSERT_TRUE(WriteStart(*directory, kId.Hash(), *read).ok());
  EXPECT_EQ(ReadFile(directory->path() + "/start"), start);
}

// The journal as it is truncated since the file `history` exists.
TEST(GoldenJournalTest, IsReadWithTheRecordsOfWhatWasTruncated) {
  const std::unique_ptr<disk::PosixDirectory> directory = CopyOfGolden();
  const std::string start = ReadFile(std::string(kGolden) + "start_with_history");
  const std::string records = ReadFile(std::string(kGolden) + "history");
  WriteFile(directory->path() + "/start", start);
  WriteFile(directory->path() + "/history", records);
  ASSERT_TRUE(directory->Remove("journal-0000000000000001").ok());
  std::vector<std::string> found;
  History history;
  ASSERT_TRUE(OpenLog(*directory, &found, kSegmentBytes, &history).ok());
  EXPECT_EQ(found.size(), 14u);
  EXPECT_EQ(PositionsIn(history), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  const absl::StatusOr<JournalStart> read = ReadStart(*directory, kId.Hash());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(WriteStart(*directory, kId.Hash(), *read).ok());
  EXPECT_EQ(ReadFile(directory->path() + "/start"), start);
  ASSERT_TRUE(WriteHistory(*directory, kId.Hash(), read->position, history).ok());
  EXPECT_EQ(ReadFile(directory->path() + "/history"), records);
}

// The numbers that Describe prints only the checksum of.
TEST(GoldenJournalTest, HoldsTheValuesOfItsGradients) {
  const std::unique_ptr<disk::PosixDirectory> directory = CopyOfGolden();
  std::vector<std::vector<float>> gradients;
  const auto log = JournalLog::Open(*directory, {}, [&](const Entry& entry) {
    if (const auto* slice = std::get_if<GradientSlice>(&entry)) {
      gradients.emplace_back(slice->values.begin(), slice->values.end());
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(gradients.size(), 10u);
  EXPECT_EQ(gradients[0][80], 10.0f);
  EXPECT_EQ(gradients[9], (std::vector<float>{-1.5f, 0.0f, 3e-40f}));
}

}  // namespace
}  // namespace kaon::journal
