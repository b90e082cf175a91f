// T20: a shard starts from data_dirs with every kind of entry: trained steps behind a snapshot, a
// change of groups, a restore, a rollback, and those of mode INTERVAL before one. Those of version
// 2 are under golden_entries/ and are never written again; the scripts that wrote them run here
// each time, and what they leave must be read as the kept ones are. Of a new version the latter are
// kept, too: each run leaves them in outputs.zip beside its test.log. Of version 1, whose digests
// mean something else (ADR 0027), one is kept, which is refused by that name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/journal/journal_files.h"
#include "tests/server/shard/scripted_shard.h"

namespace kaon::shard {
namespace {

namespace fs = std::filesystem;

constexpr char kGolden[] = "tests/server/shard/golden_entries/v2";
constexpr char kVersionOne[] = "tests/server/shard/golden_entries/v1/steps/data";

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
    {.name = "steps",
     .durability = "journal",
     .script =
         [](ScriptedShard& shard) {
           shard.RegisterAndLoad();
           shard.Train();
           shard.Restart();
           shard.Train();
           shard.Promise();
         },
     .position = 4,
     .step = 2,
     .beta2 = 0.95,
     .weights_digest = 10697220297342473735u,
     .state_digest = 14404131995522613869u,
     .next = [](ScriptedShard& shard) { shard.Train(); },
     .next_state_digest = 9193224809136331352u},
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
     .weights_digest = 16805700799194883489u,
     .state_digest = 9048648875873775723u,
     .next = [](ScriptedShard& shard) { shard.Train(); },
     .next_state_digest = 16237591654310984710u},
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
     .weights_digest = 10697220297342473735u,
     .state_digest = 10343830727170287u,
     .next = [](ScriptedShard& shard) { shard.Train(); },
     .next_state_digest = 2872962485799537895u},
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
     .weights_digest = 10697220297342473735u,
     .state_digest = 14404131995522613869u,
     .next =
         [](ScriptedShard& shard) {
           EXPECT_TRUE(shard.Describe().state().rollback_needed());
           shard.RollBack(2);
           shard.Train();
         },
     .next_state_digest = 6156562809850136571u},
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
     .weights_digest = 10697220297342473735u,
     .state_digest = 10343830727170287u,
     // A shard in mode INTERVAL does not know that nothing came after its snapshot.
     .next =
         [](ScriptedShard& shard) {
           EXPECT_TRUE(shard.Describe().state().rollback_needed());
           shard.RollBack(2);
           shard.Train();
         },
     .next_state_digest = 16349076490038712415u},
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

TEST_P(GoldenEntriesTest, AShardStartsFromThoseOfVersionTwoAndGoesOn) {
  const fs::path golden = fs::path(kGolden) / GetParam().name;
  ExpectReadAsItWasWritten(golden, true);
  // Mode INTERVAL keeps in its journal no gradients.
  if (GetParam().durability == "journal") ExpectReadAsItWasWritten(golden, false);
}

TEST_P(GoldenEntriesTest, TheScriptStillWritesWhatIsReadLikeThem) {
  const char* const outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const fs::path to =
      fs::path(outputs != nullptr ? outputs : testing::TempDir()) / "v2" / GetParam().name;
  const std::string folder = testing::TempDir() + "/written-" + GetParam().name;
  ScriptedShard shard(folder, GetParam().durability);
  GetParam().script(shard);
  // As it is now, of a shard that may be running.
  fs::create_directories(to.parent_path());
  fs::copy(folder, to, fs::copy_options::recursive);
  ExpectReadAsItWasWritten(to, true);
}

// And stays as it is.
TEST(GoldenEntriesOfVersionOneTest, AreRefusedByThatName) {
  const fs::path data = fs::path(testing::TempDir()) / "version-one";
  fs::create_directory(data);
  fs::permissions(data, fs::perms::owner_all);
  for (const auto& file : fs::directory_iterator(kVersionOne)) {
    fs::copy(fs::canonical(file), data / file.path().filename());
  }
  v1::ShardConfig config;
  config.set_data_dir(data);
  config.set_gemm("reference");
  const absl::Status status = ShardServer::Start(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), absl::StrCat(data.string(),
                                           "/identity starts with the line 'kaon "
                                           "data 1', expecting 'kaon data 2'"));
  for (const auto& file : fs::directory_iterator(data)) {
    EXPECT_EQ(journal::ReadFile(file.path()),
              journal::ReadFile(fs::path(kVersionOne) / file.path().filename()));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(data), fs::directory_iterator()),
            std::distance(fs::directory_iterator(kVersionOne), fs::directory_iterator()));
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenEntriesTest, testing::ValuesIn(kEntries),
                         [](const auto& entries) { return entries.param.name; });

}  // namespace
}  // namespace kaon::shard
