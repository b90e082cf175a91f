// The journal on a disk that loses, tears and reorders unsynced data (P6, T5). After any operations
// and a power cut at any point, all synced entries come back in order. No entry comes back that was
// not appended.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/journal/history.h"
#include "server/journal/journal_log.h"
#include "tests/server/journal/journal_files.h"
#include "tests/simulation/disk/simulated_disk.h"

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
  int truncations = 0;
  // Records that are shown although the journal no longer has them.
  uint64_t records = 0;
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
    // A device that fails after so many operations acts like a process that dies between any two.
    if (Below(4) == 0) directory_.FailAfter(Below(60));
    std::vector<std::string> found;
    history_ = std::make_unique<History>();
    absl::StatusOr<std::unique_ptr<JournalLog>> log =
        OpenLog(directory_, &found, 1500, history_.get());
    if (log.ok()) {
      CheckFound(found);
      totals_.torn_tails += !(*log)->found().torn_tail.empty();
      appended_ = found;
      // Entries that were read back count from now on.
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
    // The journal must not begin after the position that the snapshot covers.
    const auto first =
        found.empty() ? appended_.begin() : std::find(appended_.begin(), appended_.end(), found[0]);
    const auto needed =
        std::find(appended_.begin(), appended_.end(), Describe(Decision(relied_on_)));
    ASSERT_TRUE(relied_on_ == 0 ? first == appended_.begin() : first <= needed);
    totals_.truncations += first != appended_.begin();
    const auto removed = static_cast<size_t>(first - appended_.begin());
    ASSERT_GE(found.size() + removed, num_durable_);
    ASSERT_LE(found.size() + removed, appended_.size());
    ASSERT_TRUE(std::equal(found.begin(), found.end(), first));
    totals_.entries += found.size();
    CheckHistory(found);
  }

  // Checks that every decision that was not lost is shown, whatever was truncated.
  void CheckHistory(const std::vector<std::string>& found) {
    const auto last = found.empty()
                          ? appended_.begin()
                          : std::find(appended_.begin(), appended_.end(), found.back()) + 1;
    for (auto lost = last; lost != appended_.end(); ++lost) {
      if (const auto decision = positions_.find(*lost); decision != positions_.end()) {
        decided_.erase(decision->second);
      }
    }
    const std::vector<uint64_t> shown = PositionsIn(*history_);
    ASSERT_EQ(shown, std::vector<uint64_t>(decided_.begin(), decided_.end()));
    totals_.records += shown.size();
    for (const std::string& entry : found) totals_.records -= positions_.count(entry);
  }

  void NoteAppended(const Entry& entry) {
    appended_.push_back(Describe(entry));
    const auto* decision = std::get_if<DecisionRecord>(&entry);
    if (decision == nullptr) return;
    decided_.insert(decision->record.plan().position());
    history_->Add(decision->record);
  }

  void Use(JournalLog& log) {
    const uint64_t operations = Below(30);
    for (uint64_t i = 0; i < operations; ++i) {
      if (Below(10) == 0) directory_.SetFreeBytes(Below(6000));
      if (Below(3) == 0) directory_.SetUnbounded();
      const Entry entry = Draw();
      const absl::Status status = log.Append(entry);
      if (status.ok()) {
        NoteAppended(entry);
      } else if (status.code() == absl::StatusCode::kResourceExhausted) {
        ++totals_.full_disks;
      } else {
        // The entry may or may not be on the disk.
        NoteAppended(entry);
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
      if (Below(12) == 0 && !Truncate(log)) return;
    }
  }

  // Truncates up to a random decision. Returns false if the process must end.
  bool Truncate(JournalLog& log) {
    std::vector<uint64_t> decided;
    for (const std::string& entry : appended_) {
      if (const auto found = positions_.find(entry); found != positions_.end()) {
        decided.push_back(found->second);
      }
    }
    if (decided.empty()) return true;
    const uint64_t position = decided[Below(decided.size())];
    relied_on_ = std::max(relied_on_, position);
    const absl::Status status = log.Truncate(position);
    if (status.ok()) num_durable_ = appended_.size();
    totals_.device_failures += absl::IsDataLoss(status);
    return status.ok() || absl::IsResourceExhausted(status);
  }

  Entry Draw() {
    const uint64_t number = ++number_;
    switch (Below(4)) {
      case 0:
        return Promise(number);
      case 1:
        return Prepare(number, number);
      case 2:
        positions_[Describe(Decision(number))] = number;
        return Decision(number);
      default:
        // Some gradients are zeros, which must not be mistaken for unwritten bytes.
        values_.assign(Below(600), Below(2) == 0 ? 0 : static_cast<float>(number));
        return Slice(number, number, 0, values_);
    }
  }

  std::mt19937_64 random_;
  Totals& totals_;
  SimulatedDirectory directory_;
  // History of the present process.
  std::unique_ptr<History> history_;
  std::vector<float> values_;
  std::vector<std::string> appended_;
  // Positions of all decisions that were drawn.
  std::map<std::string, uint64_t> positions_;
  // Positions of decisions that may be on the disk, or were removed.
  std::set<uint64_t> decided_;
  // The highest position of a truncation, which may or may not have been carried out.
  uint64_t relied_on_ = 0;
  // Number of appended entries that a sync made durable.
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
            << " entries read back, " << totals.segments << " segments, " << totals.truncations
            << " starts that found it truncated, " << totals.records
            << " records of entries that it has not any more" << std::endl;
  EXPECT_GE(totals.power_cuts, 10'000);
  EXPECT_GT(totals.torn_tails, 1000);
  EXPECT_GT(totals.device_failures, 1000);
  EXPECT_GT(totals.full_disks, 1000);
  EXPECT_GT(totals.segments, 3 * kDirectories);
  EXPECT_GT(totals.truncations, 1000);
  EXPECT_GT(totals.records, 1000u);
}

}  // namespace
}  // namespace kaon::journal
