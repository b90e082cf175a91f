// Effects that a power cut may and may not have.
#include "tests/simulation/disk/simulated_disk.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/conformance/directory_conformance.h"

namespace kaon::disk {

struct SimulatedDirectoryFactory {
  static std::unique_ptr<Directory> Create() {
    return std::make_unique<simulation::SimulatedDirectory>("/disk", 1);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(SimulatedDirectory, DirectoryConformance, SimulatedDirectoryFactory);

}  // namespace kaon::disk

namespace kaon::simulation {
namespace {

absl::Status Append(disk::File& file, const std::string& bytes) {
  const absl::string_view slice = bytes;
  return file.Write(*file.Size(), absl::MakeConstSpan(&slice, 1));
}

std::string Content(SimulatedDirectory& directory, const std::string& name) {
  const auto file = directory.Open(name);
  if (!file.ok()) return std::string(file.status().message());
  std::string bytes(*(*file)->Size(), '\0');
  EXPECT_EQ(*(*file)->Read(0, bytes.size(), bytes.data()), bytes.size());
  return bytes;
}

// A file "a" that holds `synced`, and then `unsynced`.
std::unique_ptr<SimulatedDirectory> DiskWith(uint64_t seed, const std::string& synced,
                                             const std::vector<std::string>& unsynced) {
  auto directory = std::make_unique<SimulatedDirectory>("/disk", seed);
  auto file = directory->Create("a");
  EXPECT_TRUE(file.ok());
  EXPECT_TRUE(Append(**file, synced).ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE(directory->Sync().ok());
  for (const std::string& bytes : unsynced) EXPECT_TRUE(Append(**file, bytes).ok());
  return directory;
}

TEST(SimulatedDirectoryTest, KeepsWhatWasSyncedThroughEveryPowerCut) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    auto directory = DiskWith(seed, "synced", {"lost?"});
    EXPECT_EQ(Content(*directory->DurableCopy(), "a"), "synced");
    for (int cut = 0; cut < 2; ++cut) {
      directory->CutPower();
      EXPECT_EQ(Content(*directory, "a").substr(0, 6), "synced");
    }
  }
}

TEST(SimulatedDirectoryTest, LosesTearsAndReordersWhatWasNot) {
  const std::string before(100, 's');
  const std::string first(1000, 'x');
  const std::string second(1000, 'y');
  bool lost = false, kept = false, torn = false, reordered = false;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    auto directory = DiskWith(seed, before, {first, second});
    directory->CutPower();
    const std::string content = Content(*directory, "a");
    // Earlier writes to a sector survive before later ones.
    for (size_t start = 0; start < content.size(); start += kSectorBytes) {
      const std::string sector = content.substr(start, kSectorBytes);
      const size_t mixed = sector.find('x') != sector.npos ? sector.find('\0') : sector.npos;
      EXPECT_TRUE(mixed == sector.npos || sector.find('y', mixed) == sector.npos);
    }
    lost |= content == before;
    kept |= content == before + first + second;
    torn |= content.size() > 100 && content.find('\0') != content.npos;
    reordered |= content.find('\0') < content.find('y') && content.find('y') != content.npos;
  }
  EXPECT_TRUE(lost);
  EXPECT_TRUE(kept);
  EXPECT_TRUE(torn);
  EXPECT_TRUE(reordered);
}

TEST(SimulatedDirectoryTest, KeepsEverythingWhenOnlyTheProcessDies) {
  auto directory = DiskWith(1, "synced", {"written"});
  directory->Crash();
  EXPECT_EQ(Content(*directory, "a"), "syncedwritten");
  EXPECT_EQ(Content(*directory->DurableCopy(), "a"), "synced");
  EXPECT_EQ(directory->counters().sectors_lost, 0u);
}

TEST(SimulatedDirectoryTest, LosesOnlyWhatOneOfThemWrote) {
  std::set<std::string> of_a;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    auto directory = DiskWith(seed, "synced", {"written"});
    auto other = directory->Create("b");
    ASSERT_TRUE(Append(**other, "written").ok());
    directory->CutPowerOf("a");
    of_a.insert(Content(*directory, "a"));
    EXPECT_EQ(Content(*directory, "b"), "written");
    EXPECT_TRUE(Append(**other, "more").ok()) << "the others go on";
  }
  EXPECT_EQ(of_a.count("synced"), 1u);
  EXPECT_EQ(of_a.count("syncedwritten"), 1u);
}

TEST(SimulatedDirectoryTest, SomePowerCutUndoesATruncation) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    auto directory = DiskWith(seed, "synced", {});
    ASSERT_TRUE((*directory->Open("a"))->Truncate(3).ok());
    directory->CutPower();
    seen.insert(Content(*directory, "a"));
  }
  EXPECT_EQ(seen.count("syn"), 1u);
  EXPECT_EQ(seen.count("synced"), 1u);
}

TEST(SimulatedDirectoryTest, LosesNamesThatWereNotSynced) {
  std::set<std::vector<std::string>> seen;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    auto directory = DiskWith(seed, "synced", {});
    ASSERT_TRUE(directory->Create("b").ok());
    ASSERT_TRUE(directory->Rename("b", "c").ok());
    ASSERT_TRUE(directory->Remove("a").ok());
    directory->CutPower();
    seen.insert(*directory->List());
    directory->CutPower();
    EXPECT_EQ(seen.count(*directory->List()), 1u) << "what a cut left is durable";
  }
  using Names = std::vector<std::string>;
  const std::set<Names> expected = {{}, {"a"}, {"a", "b"}, {"a", "c"}, {"b"}, {"c"}};
  EXPECT_EQ(seen, expected);
}

TEST(SimulatedDirectoryTest, RefusesWhatDoesNotFitAndTakesItLater) {
  auto directory = DiskWith(1, "synced", {});
  directory->SetFreeBytes(3);
  auto file = directory->Open("a");
  EXPECT_EQ(Append(**file, "12345").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(*(*file)->Size(), 9u);
  EXPECT_EQ(directory->counters().full, 1u);
  const absl::string_view slice = "SYN";
  EXPECT_TRUE((*file)->Write(0, absl::MakeConstSpan(&slice, 1)).ok()) << "nothing is added";
  directory->SetUnbounded();
  EXPECT_TRUE(Append(**file, "12345").ok());
}

TEST(SimulatedDirectoryTest, FailsAtTheOperationItWasToldTo) {
  auto directory = DiskWith(1, "synced", {});
  auto file = directory->Open("a");
  directory->FailAfter(1);
  EXPECT_TRUE(Append(**file, "1").ok());
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Append(**file, "2").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(directory->Create("b").status().code(), absl::StatusCode::kDataLoss);
  directory->SetHealthy();
  EXPECT_TRUE((*file)->Sync().ok());
}

TEST(SimulatedDirectoryTest, FlipsABitOnTheMedium) {
  auto directory = DiskWith(1, "a", {});
  ASSERT_TRUE(directory->FlipBit("a", 1).ok());
  EXPECT_EQ(Content(*directory, "a"), "c");
  EXPECT_EQ(Content(*directory->DurableCopy(), "a"), "c");
}

TEST(SimulatedDirectoryTest, SameSeedLeavesTheSame) {
  const auto cut = [](uint64_t seed) {
    auto directory = DiskWith(seed, "synced", {std::string(5000, 'x'), std::string(5000, 'y')});
    directory->CutPower();
    return Content(*directory, "a");
  };
  EXPECT_EQ(cut(7), cut(7));
}

}  // namespace
}  // namespace kaon::simulation
