// T20: a shard starts from data_dirs with the entries that a data_dir of trained steps alone has
// not: a change of groups, a restore, a rollback, and those of mode INTERVAL before one. Those of
// version 1 are under golden_entries/ and are never written again; the scripts that wrote them run
// here each time, and what they leave must be read as the kept ones are. Of a new version the
// latter are kept, too: each run leaves them in outputs.zip beside its test.log.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/server/shard/scripted_shard.h"

namespace kaon::shard {
namespace {

namespace fs = std::filesystem;

constexpr char kGolden[] = "tests/server/shard/golden_entries/v1";

struct GoldenEntries {
  std::string name;
  std::string durability;
  // What was done.
  std::function<void(ScriptedShard&)> script;
  // As read from its snapshots, then its journal.
  uint64_t position = 0;
  uint64_t step = 0;
  uint64_t timeline = 1;
  uint64_t config_revision = 1;
  double beta2 = 0;
  uint64_t weights_digest = 0;
  uint64_t state_digest = 0;
  // Goes on from there.
  std::function<void(ScriptedShard&)> next;
  uint64_t next_state_digest = 0;
};

void PrintTo(const GoldenEntries& entries, std::ostream* out) { *out << entries.name; }

const GoldenEntries kEntries[] = {
    {.name = "group_change",
     .durability = "journal",
     .script =
         [](ScriptedShard& shard) {
           shard.RegisterAndLoad();
           shard.Train();
           shard.ChangeGroup("adamw.beta2", "0.5");
           shard.Train();
           shard.Stop();
         },
     .position = 5,
     .step = 2,
     .config_revision = 4,
     .beta2 = 0.5,
     .weights_digest = 1630847241595492319u,
     .state_digest = 10504321140681789249u,
     .next = [](ScriptedShard& shard) { shard.Train(); },
     .next_state_digest = 17036641522007852552u},
    {.name = "restore",
     .durability = "journal",
     .script =
         [](ScriptedShard& shard) {
           shard.RegisterAndLoad();
           shard.Train();
           shard.Checkpoint("kept");
           shard.Train();
           shard.Restore("kept");
           shard.Train();
           shard.Stop();
         },
     .position = 6,
     .step = 2,
     .timeline = 2,
     .config_revision = 5,
     .beta2 = 0.95,
     .weights_digest = 7966404073963860780u,
     .state_digest = 14251005322442387468u,
     .next = [](ScriptedShard& shard) { shard.Train(); },
     .next_state_digest = 16667347485616267519u},
    // As kill -9 leaves it: step 3 and the change are forgotten.
    {.name = "interval",
     .durability = "interval(4)",
     .script =
         [](ScriptedShard& shard) {
           shard.RegisterAndLoad();
           for (int step = 1; step <= 2; ++step) shard.Train();
           shard.AwaitSnapshot(2);
           shard.ChangeGroup("adamw.beta2", "0.5");
           shard.Train();
         },
     .position = 4,
     .step = 2,
     .beta2 = 0.95,
     .weights_digest = 7966404073963860780u,
     .state_digest = 10198049413528279434u,
     .next =
         [](ScriptedShard& shard) {
           EXPECT_TRUE(shard.Describe().state().rollback_needed());
           shard.RollBack(2);
           shard.Train();
         },
     .next_state_digest = 1504203735957314579u},
    {.name = "rollback",
     .durability = "interval(4)",
     .script =
         [](ScriptedShard& shard) {
           shard.RegisterAndLoad();
           for (int step = 1; step <= 2; ++step) shard.Train();
           shard.AwaitSnapshot(2);
           shard.Train();
           shard.RollBack(2);
           shard.Stop();
         },
     .position = 6,
     .step = 2,
     .timeline = 2,
     .config_revision = 6,
     .beta2 = 0.95,
     .weights_digest = 7966404073963860780u,
     .state_digest = 14251005322442387468u,
     // A shard in mode INTERVAL does not know that nothing came after its snapshot.
     .next =
         [](ScriptedShard& shard) {
           EXPECT_TRUE(shard.Describe().state().rollback_needed());
           shard.RollBack(2);
           shard.Train();
         },
     .next_state_digest = 11696717416145890423u},
};

class GoldenEntriesTest : public testing::TestWithParam<GoldenEntries> {
 protected:
  // A private copy of what is under `from`, without snapshots if the journal is to say it all.
  std::string CopyOf(const fs::path& from, bool with_snapshots) {
    const fs::path to = fs::path(testing::TempDir()) / "copies" / std::to_string(++copies_);
    fs::remove_all(to);
    for (const char* const name : {"data", "checkpoints"}) {
      fs::create_directories(to / name);
      fs::permissions(to / name, fs::perms::owner_all);
      if (!fs::exists(from / name)) continue;
      for (const auto& file : fs::directory_iterator(from / name)) {
        const std::string base = file.path().filename();
        if (!with_snapshots && base.starts_with("snapshot-")) continue;
        fs::copy(fs::canonical(file), to / name / base);
      }
    }
    return to;
  }

  void ExpectReadAsItWasWritten(const fs::path& from, bool with_snapshots) {
    SCOPED_TRACE(with_snapshots ? "from its snapshots" : "from the journal alone");
    const GoldenEntries& expected = GetParam();
    ScriptedShard shard(CopyOf(from, with_snapshots), expected.durability);
    const v1::DescribeShardResponse found = shard.Describe();
    EXPECT_EQ(found.state().data_loss(), "");
    EXPECT_EQ(found.state().applied_position(), expected.position);
    EXPECT_EQ(found.state().applied_step(), expected.step);
    EXPECT_EQ(found.state().timeline(), expected.timeline);
    EXPECT_EQ(found.state().config_revision(), expected.config_revision);
    ASSERT_TRUE(found.state().has_registration());
    const v1::ParameterGroup& scalars = found.state().registration().definition().groups(1);
    EXPECT_EQ(scalars.adamw().beta2(), expected.beta2);
    EXPECT_EQ(found.weights_digest(), expected.weights_digest);
    EXPECT_EQ(found.state_digest(), expected.state_digest);
    expected.next(shard);
    EXPECT_EQ(shard.Describe().state_digest(), expected.next_state_digest);
  }

  int copies_ = 0;
};

TEST_P(GoldenEntriesTest, AShardStartsFromThoseOfVersionOneAndGoesOn) {
  const fs::path golden = fs::path(kGolden) / GetParam().name;
  ExpectReadAsItWasWritten(golden, true);
  // Mode INTERVAL keeps in its journal no gradients.
  if (GetParam().durability == "journal") ExpectReadAsItWasWritten(golden, false);
}

TEST_P(GoldenEntriesTest, TheScriptStillWritesWhatIsReadLikeThem) {
  const char* const outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const fs::path to =
      fs::path(outputs != nullptr ? outputs : testing::TempDir()) / "v1" / GetParam().name;
  const std::string folder = testing::TempDir() + "/written-" + GetParam().name;
  ScriptedShard shard(folder, GetParam().durability);
  GetParam().script(shard);
  // As it is now, of a shard that may be running.
  fs::create_directories(to.parent_path());
  fs::copy(folder, to, fs::copy_options::recursive);
  ExpectReadAsItWasWritten(to, true);
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenEntriesTest, testing::ValuesIn(kEntries),
                         [](const auto& entries) { return entries.param.name; });

}  // namespace
}  // namespace kaon::shard
