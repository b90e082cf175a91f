#include "client/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "client/train/local_cluster.h"

namespace kaon::train {
namespace {

using ::testing::HasSubstr;

// Some pages of the licences: enough to learn from, little enough for sanitizers.
std::string SmallCorpus() {
  const std::string directory = testing::TempDir() + "/trainer_test_corpus";
  std::filesystem::create_directories(directory);
  for (const auto& [name, size] : {std::pair("GPL-1", 12000), std::pair("Artistic", 1500)}) {
    std::ifstream in(std::string(kDefaultCorpusDirectory) + "/" + name);
    std::string text(size, ' ');
    in.read(text.data(), size);
    std::ofstream(directory + "/" + name) << text;
  }
  return directory;
}

TrainOptions SmallOptions() {
  TrainOptions options;
  options.local = true;
  options.workers = 2;
  options.split = {1, 1};
  options.steps = 12;
  options.batch_size = 48;
  options.model = {.vocabulary = 0, .context = 8, .embedding = 6, .hidden = 16, .blocks = 2};
  options.report_every = 5;
  options.corpus_dir = SmallCorpus();
  return options;
}

std::unique_ptr<LocalCluster> MakeCluster(const TrainOptions& options, const TrainingText& text) {
  kernels::BackendOptions backend;
  backend.gemm = "reference";
  LocalOptimizer optimizer = LocalOptimizer::Create(MakeJobDefinition(options, text.model),
                                                    kernels::CreateBackend(backend).value(),
                                                    InitialWeights(text.model, options.seed))
                                 .value();
  return std::make_unique<LocalCluster>(std::move(optimizer), options.workers);
}

struct Outcome {
  absl::StatusOr<RunSummary> summary;
  std::string output;
};

using Session = std::unique_ptr<TrainingSession>;
// Replaces a worker's session with the cluster.
using ReplaceSession = std::function<absl::StatusOr<Session>(Session)>;

const std::atomic<bool> kNotSignalled{false};

Outcome RunLocally(const TrainOptions& options, const ReplaceSession& replace = nullptr,
                   const std::atomic<bool>& signalled = kNotSignalled) {
  const TrainingText text = ReadTrainingText(options).value();
  const std::unique_ptr<LocalCluster> cluster = MakeCluster(options, text);
  StopGate gate(signalled);
  std::ostringstream out;
  const TrainingRun run = {options,
                           text,
                           [&](uint32_t rank) -> absl::StatusOr<Session> {
                             Session session = cluster->MakeSession(rank);
                             if (replace == nullptr) return session;
                             return replace(std::move(session));
                           },
                           [&] { return cluster->newton_schulz_calls(); },
                           gate,
                           out};
  absl::StatusOr<RunSummary> summary = RunTraining(run);
  return {std::move(summary), out.str()};
}

class TrainerSplitTest : public testing::TestWithParam<std::vector<uint32_t>> {};

TEST_P(TrainerSplitTest, GivesTheSameWeightsHoweverTheThreadsAreTimed) {
  TrainOptions options = SmallOptions();
  options.split = GetParam();
  options.workers = GetParam().size();
  const RunSummary first = RunLocally(options).summary.value();
  const RunSummary second = RunLocally(options).summary.value();
  EXPECT_EQ(first.applied, options.steps);
  EXPECT_EQ(first.weights_digest, second.weights_digest);
  EXPECT_EQ(first.validation_loss, second.validation_loss);
}

INSTANTIATE_TEST_SUITE_P(Splits, TrainerSplitTest,
                         testing::Values(std::vector<uint32_t>{1}, std::vector<uint32_t>{1, 1},
                                         std::vector<uint32_t>{3, 5},
                                         std::vector<uint32_t>{1, 2, 3}));

TEST(TrainerTest, TrainsTheSameModelForAnySplitButForRounding) {
  TrainOptions options = SmallOptions();
  const double two = RunLocally(options).summary->validation_loss;
  options.workers = 3;
  options.split = {1, 2, 3};
  EXPECT_NEAR(RunLocally(options).summary->validation_loss, two, 1e-3);
}

TEST(TrainerTest, RoundsWhatWorkersPushAndPull) {
  TrainOptions options = SmallOptions();
  const uint64_t exact = RunLocally(options).summary->weights_digest;
  options.push_dtype = kernels::DType::kBFloat16;
  const RunSummary pushed = RunLocally(options).summary.value();
  options.push_dtype = kernels::DType::kFloat32;
  options.pull_dtype = kernels::DType::kBFloat16;
  const RunSummary pulled = RunLocally(options).summary.value();
  EXPECT_NE(pushed.weights_digest, exact);
  EXPECT_NE(pulled.weights_digest, exact);
  EXPECT_EQ(pushed.push_bytes * 2, pulled.push_bytes);
  EXPECT_EQ(pulled.pull_bytes * 2, pushed.pull_bytes);
}

TEST(TrainerTest, ReportsAPoisonedStepAndTrainsOn) {
  TrainOptions options = SmallOptions();
  options.poison_step = 4;
  const Outcome outcome = RunLocally(options);
  ASSERT_TRUE(outcome.summary.ok());
  EXPECT_EQ(outcome.summary->applied, 11u);
  EXPECT_EQ(outcome.summary->skipped, 1u);
  EXPECT_THAT(outcome.output,
              HasSubstr("SKIPPED: non-finite gradient of parameter input.weight from rank 0"));
  for (const ParameterSummary& parameter : outcome.summary->parameters) {
    EXPECT_EQ(parameter.newton_schulz_updates, parameter.orthogonalized ? 11u : 0u)
        << parameter.name;
  }
}

TEST(TrainerTest, LogsEveryStepAndTheSummary) {
  TrainOptions options = SmallOptions();
  options.log_jsonl = testing::TempDir() + "/trainer_test.jsonl";
  ASSERT_TRUE(RunLocally(options).summary.ok());
  std::ifstream file(options.log_jsonl);
  std::string line, last;
  int lines = 0;
  while (std::getline(file, line)) {
    ++lines;
    last = line;
  }
  EXPECT_EQ(lines, 13);
  EXPECT_THAT(last, HasSubstr("\"type\":\"summary\""));
}

TEST(TrainerTest, LearnsMoreThanABigramTableHolds) {
  TrainOptions options = SmallOptions();
  options.steps = 150;
  options.batch_size = 128;
  options.model.embedding = 16;
  options.model.hidden = 48;
  const RunSummary summary = RunLocally(options).summary.value();
  EXPECT_LT(summary.validation_loss, summary.bigram_loss);
}

// A session whose last step is decided, but whose pull fails because the timeline is over. The job
// stands at that step in the next timeline.
class RewoundSession : public TrainingSession {
 public:
  RewoundSession(Session inner, uint64_t step) : inner_(std::move(inner)), step_(step) {}

  absl::StatusOr<uint64_t> Start(const std::vector<std::vector<float>>& weights) override {
    return inner_->Start(weights);
  }
  absl::StatusOr<StepOutcome> Exchange(const StepContribution& contribution) override {
    return inner_->Exchange(contribution);
  }
  absl::Status Pull(uint64_t step, TensorBuffers* weights) override {
    if (step != step_ || told_) return inner_->Pull(step, weights);
    told_ = true;
    rewind_ = step_;
    return absl::FailedPreconditionError("timeline 1 pulled, expecting 2");
  }
  double loss_scale() const override { return inner_->loss_scale(); }
  std::optional<uint64_t> TakeRewind() override { return std::exchange(rewind_, std::nullopt); }
  TransferredBytes transferred() const override { return inner_->transferred(); }

 private:
  const std::unique_ptr<TrainingSession> inner_;
  const uint64_t step_;
  bool told_ = false;
  std::optional<uint64_t> rewind_;
};

TEST(TrainerTest, EndsAtTheStepThatTheJobWentBackTo) {
  const TrainOptions options = SmallOptions();
  const Outcome outcome = RunLocally(options, [&](Session inner) {
    return std::make_unique<RewoundSession>(std::move(inner), options.steps);
  });
  const RunSummary& summary = outcome.summary.value();
  EXPECT_EQ(summary.last_step, options.steps);
  EXPECT_EQ(summary.applied + 1, options.steps);
  EXPECT_FALSE(summary.stopped);
}

// Stops the run as a signal would while step 3 is open; that step is decided or abandoned.
class StoppingSession : public TrainingSession {
 public:
  StoppingSession(Session inner, std::atomic<bool>& signalled, bool give_up)
      : inner_(std::move(inner)), signalled_(signalled), give_up_(give_up) {}

  absl::StatusOr<uint64_t> Start(const std::vector<std::vector<float>>& weights) override {
    return inner_->Start(weights);
  }
  absl::StatusOr<StepOutcome> Exchange(const StepContribution& contribution) override {
    if (contribution.step == 3) {
      signalled_ = true;
      if (give_up_) return absl::CancelledError("nobody else took part");
    }
    return inner_->Exchange(contribution);
  }
  absl::Status Pull(uint64_t step, TensorBuffers* weights) override {
    return inner_->Pull(step, weights);
  }
  double loss_scale() const override { return inner_->loss_scale(); }
  TransferredBytes transferred() const override { return inner_->transferred(); }

 private:
  std::unique_ptr<TrainingSession> inner_;
  std::atomic<bool>& signalled_;
  const bool give_up_;
};

RunSummary RunUntilStopped(bool give_up) {
  std::atomic<bool> signalled{false};
  const auto stopping = [&](Session inner) {
    return std::make_unique<StoppingSession>(std::move(inner), signalled, give_up);
  };
  return RunLocally(SmallOptions(), stopping, signalled).summary.value();
}

TEST(TrainerTest, FinishesTheOpenStepWhenStopped) {
  const RunSummary summary = RunUntilStopped(false);
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.last_step, 3u);
}

TEST(TrainerTest, ReportsTheNewestDecidedStepWhenTheOpenOneIsGivenUp) {
  const RunSummary summary = RunUntilStopped(true);
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.last_step, 2u);
  EXPECT_EQ(summary.applied, 2u);
}

TEST(TrainerTest, FailsWithTheFirstWorkersFailure) {
  const auto fails = [](const Session&) { return absl::UnavailableError("no coordinator"); };
  EXPECT_EQ(RunLocally(SmallOptions(), fails).summary.status(),
            absl::UnavailableError("no coordinator"));
}

TEST(TrainerTest, RefusesALogFileThatCannotBeWritten) {
  TrainOptions options = SmallOptions();
  options.log_jsonl = "/nonexistent-directory/log.jsonl";
  const absl::Status status = RunLocally(options).summary.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent-directory/log.jsonl"));
}

}  // namespace
}  // namespace kaon::train
