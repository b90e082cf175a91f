// The failure that froze training elsewhere, and that ours does not have: one hidden matrix whose
// gradient is 1e11 times too large (its norm about 1e9), harmless to Muon by itself, takes every
// other gradient down with it where its norm clips them all (numerics.md [C6]-[C8], [N5], edge 3).
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "client/job_conversion.h"
#include "client/train/local_cluster.h"
#include "client/train/trainer.h"

namespace kaon::train {
namespace {

std::string Corpus() {
  const std::string directory = ::testing::TempDir() + "/frozen_training_corpus";
  std::filesystem::create_directories(directory);
  for (const auto& [name, size] : {std::pair("GPL-1", 12000), std::pair("Artistic", 1500)}) {
    std::ifstream in(std::string(kDefaultCorpusDirectory) + "/" + name);
    std::string text(size, ' ');
    in.read(text.data(), size);
    std::ofstream(directory + "/" + name) << text;
  }
  return directory;
}

TrainOptions Options() {
  TrainOptions options;
  options.local = true;
  options.workers = 1;
  options.split = {1};
  options.steps = 80;
  options.batch_size = 96;
  options.model = {.vocabulary = 0, .context = 8, .embedding = 12, .hidden = 32, .blocks = 2};
  options.report_every = 1000;
  options.corpus_dir = Corpus();
  return options;
}

// As such systems have it: exempt nothing, clip all by the norm of all, an eps in Newton-Schulz.
void FreezeJob(v1::JobDefinition& job) {
  job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  v1::ParameterGroup& muon = *job.mutable_groups(0);
  ASSERT_EQ(muon.rule(), v1::RULE_MUON);
  muon.set_clip_policy(v1::CLIP_POLICY_CLIP);
  muon.mutable_muon()->mutable_newton_schulz()->set_norm_mode(v1::NORM_MODE_ADD_EPS);
}

void DoNothing(v1::JobDefinition&) {}

// Validation loss of a run, on the job that `change` makes of the trainer's.
double Train(const TrainOptions& options, void (*change)(v1::JobDefinition&)) {
  const TrainingText text = ReadTrainingText(options).value();
  v1::JobDefinition job = client::ToProto(MakeJobDefinition(options, text.model));
  change(job);
  LocalOptimizer optimizer = LocalOptimizer::Create(job, kernels::CreateBackend({}).value(),
                                                    InitialWeights(text.model, options.seed))
                                 .value();
  LocalCluster cluster(std::move(optimizer), 1);
  const std::atomic<bool> signalled{false};
  StopGate gate(signalled);
  std::ostringstream out;
  const auto make_session = [&cluster](uint32_t rank) { return cluster.MakeSession(rank); };
  const absl::StatusOr<RunSummary> summary =
      RunTraining({options, text, make_session, nullptr, gate, out});
  EXPECT_TRUE(summary.ok()) << summary.status();
  return summary->validation_loss;
}

class FrozenTrainingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    TrainOptions options = Options();
    undisturbed_ = Train(options, DoNothing);
    options.steps = 1;
    start_ = Train(options, DoNothing);
  }
  static TrainOptions Disturbed() {
    TrainOptions options = Options();
    options.scale_gradient = {"block1.weight", 1e11};
    return options;
  }
  // Share of the undisturbed run's progress.
  static double Progress(double loss) { return (start_ - loss) / (start_ - undisturbed_); }

  static double start_;
  static double undisturbed_;
};

double FrozenTrainingTest::start_ = 0;
double FrozenTrainingTest::undisturbed_ = 0;

TEST_F(FrozenTrainingTest, TheUndisturbedRunLearns) { EXPECT_LT(undisturbed_, start_ - 0.5); }

TEST_F(FrozenTrainingTest, OurDefaultsReachTheUndisturbedLoss) {
  EXPECT_NEAR(Train(Disturbed(), DoNothing), undisturbed_, 0.05);
}

TEST_F(FrozenTrainingTest, OneNormForAllAndAnEpsFreezeIt) {
  const double loss = Train(Disturbed(), FreezeJob);
  // What there is comes from the first steps: the output head starts at zero, so that the first
  // gradient of a hidden matrix is zero too, and Adam remembers that step for a while.
  EXPECT_LT(Progress(loss), 0.4) << loss << " of " << start_ << " .. " << undisturbed_;
}

// Without the disturbance that job trains like any other: nothing else in it is to blame.
TEST_F(FrozenTrainingTest, ThatJobIsFineUntilTheNormIsHuge) {
  EXPECT_GT(Progress(Train(Options(), FreezeJob)), 0.9);
}

// [C6]: the floor alone brings it back.
TEST_F(FrozenTrainingTest, AFloorThawsIt) {
  const double loss = Train(Disturbed(), [](v1::JobDefinition& job) {
    FreezeJob(job);
    job.set_clip_floor(0.05);
  });
  EXPECT_GT(Progress(loss), 0.9) << loss << " of " << start_ << " .. " << undisturbed_;
}

}  // namespace
}  // namespace kaon::train
