// A group of form `fastest`: chosen by what real shards measured, kept over restarts of everybody,
// and no other bits than those of a job that asks for the chosen form (ADR 0024).
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/integration/tiny_training.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon::testing {
namespace {

constexpr uint64_t kRestartAfter = 2;
constexpr uint64_t kSteps = 4;

JobDefinition WithForm(JobDefinition job, NewtonSchulzForm form) {
  for (ParameterGroup& group : job.groups) {
    if (group.rule == Rule::kMuon) group.muon.newton_schulz.form = form;
  }
  return job;
}

// Of the job's only group of Muon.
NewtonSchulzOptions MuonOf(const JobDescription& job) {
  for (const ParameterGroup& group : job.definition.groups) {
    if (group.rule == Rule::kMuon) return group.muon.newton_schulz;
  }
  ADD_FAILURE() << "no group of Muon";
  return {};
}

struct Trained {
  NewtonSchulzOptions before;
  NewtonSchulzOptions after;
  std::vector<std::vector<float>> weights;
};

// With `restarts`, everybody but the worker is started again after some steps, and the shards,
// which hold a job by then, measure nothing. Absent where a busy machine left no time to measure.
std::optional<Trained> Train(const JobDefinition& definition, bool restarts) {
  const v1::JobDefinition job = simulation::TinyJob(1);
  InProcessCluster cluster(2, "", 0, "onednn");
  Client client = cluster.Connect();
  Result<Job> registered = client.Register(definition);
  if (registered.status().code() == StatusCode::kFailedPrecondition) return std::nullopt;
  EXPECT_TRUE(registered.ok()) << registered.status().ToString();
  Trained trained;
  trained.before = MuonOf(registered->description());
  Result<Worker> worker = registered->Join(0);
  EXPECT_TRUE(worker.ok()) << worker.status().ToString();
  LoadWeights(job, *worker);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    EXPECT_TRUE(TrainStep(job, *worker, step).applied);
    if (!restarts || step != kRestartAfter) continue;
    for (int shard = 0; shard < 2; ++shard) {
      cluster.StopShard(shard);
      cluster.StartShard(shard);
    }
    cluster.ReplaceCoordinator();
  }
  Client another = cluster.Connect();
  Result<Job> again = another.Register(definition);
  EXPECT_TRUE(again.ok()) << again.status().ToString();
  trained.after = MuonOf(again->description());
  trained.weights = PullAll(job, *registered, kSteps);
  return trained;
}

TEST(FastestFormTest, IsChosenOnceAndComputesWhatTheChosenFormDoes) {
  const JobDefinition job = PublicJob(simulation::TinyJob(1));
  std::optional<Trained> trained;
  for (int attempt = 0; attempt < 20 && !trained.has_value(); ++attempt) {
    trained = Train(WithForm(job, NewtonSchulzForm::kFastest), /*restarts=*/true);
  }
  ASSERT_TRUE(trained.has_value()) << "nothing was measured";
  const Trained& chosen = *trained;
  ASSERT_TRUE(chosen.before.form.has_value());
  EXPECT_NE(*chosen.before.form, NewtonSchulzForm::kFastest);
  EXPECT_EQ(chosen.after.form, chosen.before.form);
  EXPECT_EQ(chosen.after.gram_restarts, chosen.before.gram_restarts);
  JobDefinition written_out = WithForm(job, *chosen.before.form);
  for (ParameterGroup& group : written_out.groups) {
    if (group.rule == Rule::kMuon) {
      group.muon.newton_schulz.gram_restarts = chosen.before.gram_restarts;
    }
  }
  EXPECT_EQ(chosen.weights, Train(written_out, /*restarts=*/false)->weights);
}

}  // namespace
}  // namespace kaon::testing
