// The journal on a disk that loses, tears and reorders what was not synced (P6, T5): whatever is
// done and wherever the power is cut, everything that was synced comes back, in order, and nothing
// but what was appended.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/journal/journal_log.h"
#include "tests/server/journal/journal_files.h"
#include "tests/simulation/simulated_disk.h"

namespace kaon::journal {
namespace {

using simulation::SimulatedDirectory;

struct Totals {
  int lives = 0;
  int torn_tails = 0;
  int power_cuts = 0;
  int device_failures = 0;
  int full_disks = 0;
  uint64_t entries = 0;
  uint64_t segments = 0;
};

// One directory through many lives of its process.
class Lives {
 public:
  Lives(uint64_t seed, Totals& totals)
      : random_(seed), totals_(totals), directory_("/disk", seed * 2 + 1) {}

  void Run(int lives) {
    for (int life = 0; life < lives && !testing::Test::HasFatalFailure(); ++life) Live();
    const std::vector<std::string> names = std::move(directory_.List()).value();
    totals_.segments += std::count_if(names.begin(), names.end(), [](const std::string& name) {
      return ParseSegmentName(name).has_value();
    });
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  void Live() {
    ++totals_.lives;
    // A device that fails after so many operations stands for a process that dies between any two.
    if (Below(4) == 0) directory_.FailAfter(Below(60));
    std::vector<std::string> found;
    absl::StatusOr<std::unique_ptr<JournalLog>> log = OpenLog(directory_, &found, 1500);
    if (log.ok()) {
      CheckFound(found);
      totals_.torn_tails += !(*log)->found().torn_tail.empty();
      appended_ = found;
      // What was read back counts from now on.
      num_durable_ = appended_.size();
      if (Below(2) == 0) directory_.FailAfter(Below(60));
      Use(**log);
    } else {
      ASSERT_TRUE(absl::EndsWith(log.status().message(), "Input/output error")) << log.status();
    }
    log = absl::UnknownError("its process died");
    if (Below(4) == 0) {
      directory_.Crash();
    } else {
      directory_.CutPower();
      ++totals_.power_cuts;
    }
    directory_.SetUnbounded();
    directory_.SetHealthy();
  }

  void CheckFound(const std::vector<std::string>& found) {
    ASSERT_GE(found.size(), num_durable_);
    ASSERT_LE(found.size(), appended_.size());
    ASSERT_TRUE(std::equal(found.begin(), found.end(), appended_.begin()));
    totals_.entries += found.size();
  }

  void Use(JournalLog& log) {
    const uint64_t operations = Below(30);
    for (uint64_t i = 0; i < operations; ++i) {
      if (Below(10) == 0) directory_.SetFreeBytes(Below(6000));
      if (Below(3) == 0) directory_.SetUnbounded();
      const Entry entry = Draw();
      const absl::Status status = log.Append(entry);
      if (status.ok()) {
        appended_.push_back(Describe(entry));
      } else if (status.code() == absl::StatusCode::kResourceExhausted) {
        ++totals_.full_disks;
      } else {
        // Whether it is on disk is not known.
        appended_.push_back(Describe(entry));
        ++totals_.device_failures;
        return;
      }
      if (Below(3) == 0) {
        if (!log.Sync().ok()) {
          ++totals_.device_failures;
          return;
        }
        num_durable_ = appended_.size();
      }
    }
  }

  Entry Draw() {
    const uint64_t number = ++number_;
    switch (Below(4)) {
      case 0:
        return Promise(number);
      case 1:
        return Prepare(number, number);
      case 2:
        return Decision(number);
      default:
        // Zeros as well: a gradient may be, and must not be taken for what was not written.
        values_.assign(Below(600), Below(2) == 0 ? 0 : static_cast<float>(number));
        return Slice(number, number, 0, values_);
    }
  }

  std::mt19937_64 random_;
  Totals& totals_;
  SimulatedDirectory directory_;
  std::vector<float> values_;
  std::vector<std::string> appended_;
  // Of those, how many a sync made durable.
  size_t num_durable_ = 0;
  uint64_t number_ = 0;
};

TEST(PowerCutTest, LosesNothingThatWasSynced) {
  constexpr uint64_t kSeed = 20261121;
  constexpr int kDirectories = 1500;
  constexpr int kLives = 10;
  Totals totals;
  for (uint64_t seed = 0; seed < kDirectories && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Lives(kSeed + seed, totals).Run(kLives);
  }
  std::cout << totals.lives << " lives in " << kDirectories << " directories, seed " << kSeed
            << ": " << totals.power_cuts << " power cuts, " << totals.device_failures
            << " failures of the device, " << totals.full_disks << " writes to a full disk, "
            << totals.torn_tails << " torn tails cut off, " << totals.entries
            << " entries read back, " << totals.segments << " segments" << std::endl;
  EXPECT_GE(totals.power_cuts, 10'000);
  EXPECT_GT(totals.torn_tails, 1000);
  EXPECT_GT(totals.device_failures, 1000);
  EXPECT_GT(totals.full_disks, 1000);
  EXPECT_GT(totals.segments, 10 * kDirectories);
}

}  // namespace
}  // namespace kaon::journal
