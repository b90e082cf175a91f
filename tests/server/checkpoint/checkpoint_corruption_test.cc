// Finds and names every damage to the bytes of a checkpoint on disk before use (P9, T6). The newest
// good checkpoint is used instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

constexpr uint32_t kSeed = 20261121;
constexpr size_t kSector = 512;

class CheckpointCorruptionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteCheckpoint(directory_, "old", 10, kShards).ok());
    ASSERT_TRUE(WriteCheckpoint(directory_, "new", 11, kShards).ok());
    const std::vector<std::string> names = *disk_.List();
    for (const std::string& name : names) {
      if (absl::StartsWith(name, "new.")) names_.push_back(name);
    }
    ASSERT_GE(names_.size(), 4u);
  }

  std::string Get(const std::string& name) {
    const std::unique_ptr<disk::File> file = disk_.Open(name).value();
    std::string bytes(*file->Size(), '\0');
    EXPECT_EQ(*file->Read(0, bytes.size(), bytes.data()), bytes.size());
    return bytes;
  }
  void Put(const std::string& name, absl::string_view bytes) {
    const std::unique_ptr<disk::File> file = disk_.Open(name).value();
    ASSERT_TRUE(file->Truncate(0).ok());
    ASSERT_TRUE(file->Write(0, {bytes}).ok());
    ASSERT_TRUE(file->Sync().ok());
  }

  // Of every test, for tests/report.py.
  ~CheckpointCorruptionTest() override {
    std::cout << "damaged checkpoints: " << tried_ << ", found " << found_
              << ", naming the very file " << found_ << "; seed " << kSeed << std::endl;
  }

  // The damaged checkpoint is refused naming the file and its state, and "old" is found.
  void ExpectFound(const std::string& named, absl::string_view damage) {
    ++tried_;
    const absl::Status status = directory_.Verify("new").status();
    ASSERT_FALSE(status.ok()) << damage;
    const bool is_named = absl::StrContains(status.message(), absl::StrCat("disk/", named));
    EXPECT_TRUE(is_named) << damage << ": " << status;
    // Of a damaged manifest nothing but its name is known.
    if (!absl::EndsWith(named, ".manifest")) {
      EXPECT_TRUE(absl::StrContains(status.message(), "it is of step 9, position 11")) << status;
    }
    found_ += is_named;
    const FoundCheckpoint found = directory_.FindNewest("tiny").value();
    ASSERT_TRUE(found.newest.has_value()) << damage;
    EXPECT_EQ(found.newest->id(), "old") << damage;
    ASSERT_EQ(found.skipped.size(), 1u) << damage;
    EXPECT_EQ(found.skipped[0].reason, absl::IsNotFound(status)
                                           ? "it has no manifest: it was never finished"
                                           : status.ToString());
  }

  // With its place in the file.
  void ExpectFragmentNamed(const std::string& name, uint64_t byte) {
    const uint64_t fragment = byte / kFragmentBytes;
    const absl::Status status = directory_.Verify("new").status();
    EXPECT_TRUE(absl::StrContains(
        status.message(),
        absl::StrCat(name, ": fragment ", fragment, " (bytes ", fragment * kFragmentBytes, " to ")))
        << status;
  }

  // Damages one file by `change`, looks, and puts it back.
  void Damage(const std::string& name, absl::string_view what,
              const std::function<void(std::string&)>& change) {
    const std::string good = Get(name);
    std::string bad = good;
    change(bad);
    if (bad == good) return;
    Put(name, bad);
    ExpectFound(name, absl::StrCat(what, " of ", name));
    Put(name, good);
  }

  static constexpr TinyShards kShards = {2, 32, 5};
  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
  // Files of "new".
  std::vector<std::string> names_;
  std::mt19937 random_{kSeed};
  int tried_ = 0;
  int found_ = 0;
};

TEST_F(CheckpointCorruptionTest, FindsEveryFlippedBit) {
  for (int i = 0; i < 2000; ++i) {
    const std::string& name = names_[random_() % names_.size()];
    const size_t size = Get(name).size();
    const size_t bit = random_() % (size * 8);
    ASSERT_TRUE(disk_.FlipBit(name, bit).ok());
    ExpectFound(name, absl::StrCat("bit ", bit, " of ", name));
    if (!absl::EndsWith(name, ".manifest")) ExpectFragmentNamed(name, bit / 8);
    ASSERT_TRUE(disk_.FlipBit(name, bit).ok());
  }
  EXPECT_EQ(found_, 2000);
  EXPECT_TRUE(directory_.Verify("new").ok());
}

TEST_F(CheckpointCorruptionTest, FindsEveryCutAndEveryAddition) {
  for (const std::string& name : names_) {
    const size_t size = Get(name).size();
    for (size_t at = 0; at < size; at += kSector) {
      Damage(name, "cut", [&](std::string& bytes) { bytes.resize(at); });
    }
    Damage(name, "last byte", [&](std::string& bytes) { bytes.pop_back(); });
    Damage(name, "one byte more", [&](std::string& bytes) { bytes.push_back(' '); });
  }
  EXPECT_GT(found_, 20);
  EXPECT_TRUE(directory_.Verify("new").ok());
}

// Torn and misdirected writes: sectors that read as zeros, as garbage, as each other.
TEST_F(CheckpointCorruptionTest, FindsEveryLostAndMisplacedSector) {
  for (int i = 0; i < 600; ++i) {
    const std::string& name = names_[random_() % names_.size()];
    Damage(name, "sectors", [&](std::string& bytes) {
      const size_t sectors = (bytes.size() + kSector - 1) / kSector;
      const size_t a = random_() % sectors * kSector;
      const size_t b = random_() % sectors * kSector;
      const size_t length = std::min({kSector, bytes.size() - a, bytes.size() - b});
      switch (i % 3) {
        case 0:
          std::fill_n(bytes.begin() + static_cast<int64_t>(a), length, '\0');
          break;
        case 1:
          std::swap_ranges(bytes.begin() + static_cast<int64_t>(a),
                           bytes.begin() + static_cast<int64_t>(a + length),
                           bytes.begin() + static_cast<int64_t>(b));
          break;
        default:
          for (size_t k = 0; k < length; ++k) bytes[a + k] = static_cast<char>(random_());
      }
    });
  }
  EXPECT_GT(found_, 300);
  EXPECT_TRUE(directory_.Verify("new").ok());
}

// Stale and misdirected files: of the checkpoint before, of another shard.
TEST_F(CheckpointCorruptionTest, FindsEveryFileOfAnotherPlace) {
  const std::vector<std::string> all = *disk_.List();
  for (const std::string& name : names_) {
    for (const std::string& other : all) {
      if (other == name) continue;
      const std::string contents = Get(other);
      Damage(name, absl::StrCat(other, " in place"), [&](std::string& bytes) { bytes = contents; });
    }
    const std::string good = Get(name);
    ASSERT_TRUE(disk_.Remove(name).ok());
    ExpectFound(name, absl::StrCat(name, " missing"));
    ASSERT_TRUE(disk_.Create(name).ok());
    Put(name, good);
  }
  EXPECT_TRUE(directory_.Verify("new").ok());
}

TEST_F(CheckpointCorruptionTest, FindsSectorsOfTheCheckpointBefore) {
  int damaged = 0;
  for (const std::string& name : names_) {
    const std::string stale = Get("old" + name.substr(3));
    for (size_t at = 0; at < std::min(stale.size(), Get(name).size()); at += kSector) {
      Damage(name, "stale sector", [&](std::string& bytes) {
        const size_t length = std::min({kSector, bytes.size() - at, stale.size() - at});
        bytes.replace(at, length, stale, at, length);
        ++damaged;
      });
    }
  }
  EXPECT_GT(damaged, 20);
  EXPECT_GT(found_, 4);
}

}  // namespace
}  // namespace kaon::checkpoint
