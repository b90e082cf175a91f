// A truncated journal whose files were damaged while no process ran (P8, T6). The tests flip every
// bit; cut files; swap, age, zero and replace blocks; and remove and replace segments. Each damage
// is found before anything is used. The message names the file. For a segment it names the first
// damaged frame, with the step and the position before it. Only an unsynced tail is dropped without
// an error, and nothing durable is in it.
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/journal/frame.h"
#include "server/journal/history_file.h"
#include "server/journal/journal_log.h"
#include "server/journal/journal_start.h"
#include "tests/server/journal/journal_files.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::journal {
namespace {

using simulation::SimulatedDirectory;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261121;

// Returns a decision whose step differs from its position.
DecisionRecord StepDecision(uint64_t position) {
  DecisionRecord decision = Decision(position);
  decision.record.mutable_plan()->mutable_step()->set_step(position + 100);
  return decision;
}

class CorruptionTest : public testing::Test {
 protected:
  CorruptionTest() {
    Write(*original_, kId, 1.5f);
    FindPlaces();
  }

  // Writes steps to several segments, with gradients that have whole sectors of zeros. The last
  // entries are not synced.
  void Write(SimulatedDirectory& directory, const DirectoryId& id, float value) {
    History history;
    JournalLog::Options options;
    options.history = &history;
    options.segment_bytes = 24 << 10;
    options.id_if_created = id;
    const auto log =
        JournalLog::Open(directory, options, [](const Entry&) { return absl::OkStatus(); });
    ASSERT_TRUE(log.ok()) << log.status();
    std::vector<float> values(1000, value);
    std::fill(values.begin() + 200, values.begin() + 600, 0.0f);
    ASSERT_TRUE((*log)->Append(Promise(1)).ok());
    for (uint64_t position = 1; position <= 12; ++position) {
      for (uint32_t id = 0; id < 3; ++id) {
        values[0] = static_cast<float>(position * 10 + id);
        ASSERT_TRUE((*log)->Append(Slice(position, position, id, values)).ok());
      }
      ASSERT_TRUE((*log)->Append(Prepare(position, position)).ok());
      ASSERT_TRUE((*log)->Sync().ok());
      durable_end_ = (*log)->bytes();
      ASSERT_TRUE((*log)->Append(StepDecision(position)).ok());
      history.Add(StepDecision(position).record);
      if (position == 7) {
        ASSERT_TRUE((*log)->Truncate(5).ok());
      }
    }
    ASSERT_GT((*log)->appended_bytes(), (*log)->bytes());
    directory.Crash();
  }

  static std::unique_ptr<SimulatedDirectory> CopyOf(SimulatedDirectory& directory) {
    auto copy = std::make_unique<SimulatedDirectory>("/d", 1);
    for (const std::string& name : Names(directory)) Put(*copy, name, Get(directory, name));
    return copy;
  }
  static std::vector<std::string> Names(SimulatedDirectory& directory) {
    return std::move(directory.List()).value();
  }
  static std::vector<std::string> Segments(SimulatedDirectory& directory) {
    std::vector<std::string> names = Names(directory);
    names.erase(
        std::remove_if(names.begin(), names.end(),
                       [](const std::string& name) { return !ParseSegmentName(name).has_value(); }),
        names.end());
    return names;
  }
  static std::string Get(SimulatedDirectory& directory, const std::string& name) {
    const auto file = std::move(directory.Open(name)).value();
    std::string contents(*file->Size(), '\0');
    EXPECT_EQ(*file->Read(0, contents.size(), contents.data()), contents.size());
    return contents;
  }
  static void Put(SimulatedDirectory& directory, const std::string& name,
                  const std::string& contents) {
    const absl::Status removed = directory.Remove(name);
    EXPECT_TRUE(removed.ok() || removed.code() == absl::StatusCode::kNotFound);
    const auto file = std::move(directory.Create(name)).value();
    EXPECT_TRUE(file->Write(0, {contents}).ok());
    EXPECT_TRUE(file->Sync().ok());
    EXPECT_TRUE(directory.Sync().ok());
  }

  // A journal with a damaged file `history` opens and reports the damage.
  static absl::Status StatusOf(const absl::StatusOr<std::unique_ptr<JournalLog>>& log) {
    if (!log.ok() || (*log)->found().history_problem.empty()) return log.status();
    return absl::DataLossError((*log)->found().history_problem);
  }
  // Opens the damaged journal. The damage must be found, and the message must name its file. For a
  // missing file it may name `or_else`. Nothing may be changed.
  void ExpectFound(SimulatedDirectory& directory, const std::string& name,
                   const std::string& or_else = "") {
    ++damaged_;
    const std::vector<std::string> before = Names(directory);
    std::vector<std::string> entries;
    const absl::Status status = StatusOf(OpenLog(directory, &entries));
    // A damaged first line of the identity looks like another version.
    const bool refused =
        status.code() == absl::StatusCode::kDataLoss ||
        (status.code() == absl::StatusCode::kFailedPrecondition && name == kIdentityFile);
    EXPECT_TRUE(refused) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "/d/")) << status;
    found_ += refused;
    const bool named =
        absl::StrContains(status.message(), absl::StrCat("/d/", name)) ||
        (!or_else.empty() && absl::StrContains(status.message(), absl::StrCat("/d/", or_else)));
    EXPECT_TRUE(named) << name << ": " << status;
    named_ += named;
    EXPECT_EQ(Names(directory), before);
    message_ = std::string(status.message());
  }
  // Place of a frame of the undamaged journal, and the last entry before it.
  struct Place {
    std::string segment;
    uint64_t offset = 0;
    uint64_t end = 0;
    uint64_t sequence = 0;
    uint64_t position = 0;
    std::string step;
  };
  // Records the place of every frame, in order.
  void FindPlaces() {
    Place place;
    place.position = ReadStart(*original_, kId.Hash())->position;
    for (const std::string& name : Segments(*original_)) {
      const std::string contents = Get(*original_, name);
      place.segment = name;
      for (place.end = 0; place.end < contents.size();) {
        place.offset = place.end;
        const FrameHeader header =
            DecodeFrameHeader(absl::string_view(contents).substr(place.offset)).value();
        place.end += FrameBytes(header.payload_bytes);
        place.sequence = header.sequence;
        places_.push_back(place);
        if (header.position > 0) place.position = header.position;
        if (header.type == FrameType::kDecision) {
          place.step = absl::StrCat("step ", header.position + 100, ", ");
        }
      }
    }
  }
  // Returns the place of the frame that holds `byte` of a segment.
  const Place& PlaceOf(const std::string& segment, uint64_t byte) const {
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& one) {
      return one.segment == segment && byte < one.end;
    });
    CHECK(place != places_.end()) << segment << " has no byte " << byte;
    return *place;
  }
  // Expects the message to name the frame that holds `byte`, and the entry before it.
  void ExpectNamedFrameOf(const std::string& name, uint64_t byte) {
    const Place& place = PlaceOf(name, byte);
    EXPECT_THAT(message_, HasSubstr(absl::StrCat("/d/", name, " at offset ", place.offset)));
    ExpectNamedEntry(place);
  }
  void ExpectNamedEntry(const Place& place) {
    EXPECT_THAT(message_,
                HasSubstr(absl::StrCat(" at offset ", place.offset, ", frame ", place.sequence,
                                       " after ", place.step, "position ", place.position, ": ")));
  }
  // Expects the message to name the frame of `history`, whose frames are one sector each.
  void ExpectNamedHistoryFrameOf(uint64_t byte) {
    EXPECT_THAT(message_, HasSubstr(absl::StrCat("/d/history at offset ",
                                                 byte / kSectorBytes * kSectorBytes, ": ")));
  }
  // Expects the message to name the frame of the first byte that changed or is gone.
  void ExpectNamedDamage(const std::string& name, const std::string& contents,
                         const std::string& changed) {
    const auto first =
        std::mismatch(contents.begin(), contents.end(), changed.begin(), changed.end());
    const auto byte = static_cast<uint64_t>(first.first - contents.begin());
    if (ParseSegmentName(name).has_value()) ExpectNamedFrameOf(name, byte);
    if (name == kHistoryFile) ExpectNamedHistoryFrameOf(byte);
  }
  // Changes one file and expects the damage to be found. For a file of frames the first damaged
  // frame must be named.
  void ExpectFoundIn(const std::string& name, const std::string& changed) {
    const std::unique_ptr<SimulatedDirectory> copy = CopyOf(*original_);
    Put(*copy, name, changed);
    ExpectFound(*copy, name);
    ExpectNamedDamage(name, Get(*original_, name), changed);
  }
  void Report(absl::string_view what) {
    std::cout << what << ": " << damaged_ << ", found " << found_ << ", naming the very file "
              << named_ << "; seed " << kSeed << std::endl;
    EXPECT_EQ(found_, damaged_);
    EXPECT_EQ(named_, damaged_);
  }

  static constexpr DirectoryId kId = {0x1111222233334444, 0x5555666677778888};
  // The newest one.
  std::string message_;
  const std::unique_ptr<SimulatedDirectory> original_ =
      std::make_unique<SimulatedDirectory>("/d", 1);
  std::vector<Place> places_;
  // End of the newest vote, in bytes of all segments.
  uint64_t durable_end_ = 0;
  std::mt19937_64 random_{kSeed};
  int damaged_ = 0;
  int found_ = 0;
  int named_ = 0;
};

TEST_F(CorruptionTest, FindsEveryFlippedBit) {
  for (const std::string& name : Names(*original_)) {
    const std::string contents = Get(*original_, name);
    const int flips = ParseSegmentName(name).has_value() ? 700 : 200;
    for (int i = 0; i < flips; ++i) {
      const uint64_t bit = random_() % (contents.size() * 8);
      std::string flipped = contents;
      flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
      ExpectFoundIn(name, flipped);
    }
  }
  EXPECT_GE(damaged_, 2000);
  Report("single flipped bits");
}

// A power cut may have removed the file `durable`. A flipped bit differs from the remains of a torn
// write.
TEST_F(CorruptionTest, FindsEveryFlippedBitAlsoWithoutTheMark) {
  ASSERT_TRUE(original_->Remove(kDurableMarkFile).ok());
  const std::string name = Segments(*original_).back();
  const std::string contents = Get(*original_, name);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bit = random_() % (contents.size() * 8);
    std::string flipped = contents;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ExpectFoundIn(name, flipped);
  }
  Report("single flipped bits of the last segment, without the mark");
}

TEST_F(CorruptionTest, FindsEveryTruncationOfWhatWasDurable) {
  const std::vector<std::string> segments = Segments(*original_);
  uint64_t before_last = 0;
  for (const std::string& name : segments) {
    const std::string contents = Get(*original_, name);
    const bool last = name == segments.back();
    const uint64_t durable = last ? durable_end_ - before_last : contents.size();
    for (uint64_t size = 0; size < durable; size += 512) {
      ExpectFoundIn(name, contents.substr(0, size));
      // Also cuts the newest vote at every length.
      for (uint64_t odd = 1; last && size + 1024 > durable && odd < 512; ++odd) {
        if (size + odd < durable) ExpectFoundIn(name, contents.substr(0, size + odd));
      }
    }
    before_last += contents.size();
  }
  for (const std::string name : {kIdentityFile, kStartFile, kHistoryFile}) {
    const std::string contents = Get(*original_, name);
    for (uint64_t size = 0; size < contents.size(); ++size) {
      ExpectFoundIn(name, contents.substr(0, size));
    }
  }
  Report("truncations");
}

// Only data that was not synced may be cut off.
TEST_F(CorruptionTest, CutsOffNoMoreThanTheUnsyncedTail) {
  std::vector<std::string> all;
  ASSERT_TRUE(OpenLog(*CopyOf(*original_), &all).ok());
  const std::string name = Segments(*original_).back();
  const std::string contents = Get(*original_, name);
  uint64_t before = 0;
  for (const std::string& other : Segments(*original_)) {
    if (other != name) before += Get(*original_, other).size();
  }
  const uint64_t durable = durable_end_ - before;
  ASSERT_EQ(contents.size(), durable + 512);
  int torn = 0;
  for (uint64_t size = durable; size < contents.size(); ++size) {
    const std::unique_ptr<SimulatedDirectory> copy = CopyOf(*original_);
    Put(*copy, name, contents.substr(0, size));
    std::vector<std::string> entries;
    const auto log = OpenLog(*copy, &entries);
    ASSERT_TRUE(log.ok()) << log.status();
    // All but the last decision, which waits for the next vote.
    ASSERT_EQ(entries, std::vector<std::string>(all.begin(), all.end() - 1));
    const std::string tail = size == durable ? ""
                                             : absl::StrCat("/d/", name, " from offset ", durable,
                                                            ": ", size - durable, " bytes");
    ASSERT_EQ((*log)->found().torn_tail, tail);
    ++torn;
  }
  std::cout << "truncations of the unsynced tail: " << torn << ", no durable entry dropped"
            << std::endl;
}

TEST_F(CorruptionTest, FindsSwappedStaleZeroedAndForeignBlocks) {
  const auto foreign = std::make_unique<SimulatedDirectory>("/d", 2);
  const uint64_t durable = durable_end_;
  Write(*foreign, {7, 8}, 2.5f);
  ASSERT_EQ(durable_end_, durable);
  const std::vector<std::string> segments = Segments(*original_);
  int identical = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string& name = segments[random_() % segments.size()];
    const std::string contents = Get(*original_, name);
    const std::string& from_name = segments[random_() % segments.size()];
    const uint64_t block = random_() % 2 == 0 ? 512 : 4096;
    // The last block belongs to the entry that is not synced, so it is left alone.
    const uint64_t blocks = (contents.size() - 512) / block;
    const uint64_t at = random_() % blocks * block;
    std::string changed = contents;
    const auto take = [&](const std::string& source) {
      const uint64_t from = random_() % (source.size() / block) * block;
      changed.replace(at, block, source.substr(from, block));
      return from;
    };
    switch (i % 4) {
      case 0: {
        const uint64_t from = take(contents);
        if (from + block <= contents.size() - 512) {
          changed.replace(from, block, contents.substr(at, block));
        }
        break;
      }
      case 1:
        take(Get(*original_, from_name));
        break;
      case 2:
        changed.replace(at, block, std::string(block, '\0'));
        break;
      default:
        changed.replace(at, block, Get(*foreign, name).substr(at, block));
    }
    if (changed == contents) {
      ++identical;
    } else {
      ExpectFoundIn(name, changed);
    }
  }
  EXPECT_GT(damaged_, 2000);
  Report(absl::StrCat("swapped, stale, zeroed and foreign blocks (", identical,
                      " more changed nothing)"));
}

TEST_F(CorruptionTest, FindsMissingRenamedDoubledAndForeignFiles) {
  const auto foreign = std::make_unique<SimulatedDirectory>("/d", 2);
  Write(*foreign, {7, 8}, 2.5f);
  for (const std::string& name : Names(*original_)) {
    if (name != kDurableMarkFile) {
      const auto missing = CopyOf(*original_);
      ASSERT_TRUE(missing->Remove(name).ok());
      ExpectFound(*missing, name);
      if (ParseSegmentName(name).has_value()) ExpectNamedEntry(PlaceOf(name, 0));
    }
    ExpectFoundIn(name, Get(*foreign, name));
    ExpectFoundIn(name, name == kDurableMarkFile ? std::string(512, 'x') : "");
    for (const std::string& other : Segments(*original_)) {
      if (name == other || !ParseSegmentName(name).has_value()) continue;
      ExpectFoundIn(name, Get(*original_, other));
      const auto renamed = CopyOf(*original_);
      ASSERT_TRUE(renamed->Rename(name, other).ok());
      // Both were changed, and the log ends in the first.
      ExpectFound(*renamed, other, name);
      ExpectNamedEntry(PlaceOf(std::min(name, other), 0));
    }
  }
  const auto doubled = CopyOf(*original_);
  Put(*doubled, SegmentName(1000), Get(*original_, Segments(*original_).back()));
  ExpectFound(*doubled, SegmentName(1000));
  Report("missing, renamed, doubled and foreign files");
}

}  // namespace
}  // namespace kaon::journal
