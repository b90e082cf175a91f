#include "client/train/trainer.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/train/batch_plan.h"
#include "client/train/ngram.h"
#include "client/wire/job_conversion.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "kernels/reduce/digest.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"

namespace kaon::train {
namespace {

using Weights = std::vector<std::vector<float>>;

double SecondsSince(absl::Time begin) { return absl::ToDoubleSeconds(SteadyNow() - begin); }

// Prints, logs and adds up the steps. Used only by the reporting worker's thread until it is
// joined.
class StepLog {
 public:
  explicit StepLog(const TrainingRun& run) : run_(run) {}

  absl::Status Open() {
    const std::string& path = run_.options.log_jsonl;
    if (path.empty()) return absl::OkStatus();
    file_.open(path);
    if (file_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--log-jsonl ", path, " cannot be written"));
  }

  void Add(const StepReport& report) {
    summary.last_step = report.record.step;
    ++(report.record.applied ? summary.applied : summary.skipped);
    summary.tokens += report.tokens;
    summary.phases.compute += report.seconds.compute;
    summary.phases.push += report.seconds.push;
    summary.phases.decide += report.seconds.decide;
    summary.phases.pull += report.seconds.pull;
    if (file_.is_open()) file_ << StepJson(report) << std::endl;
    const uint64_t step = report.record.step;
    const bool shown = step == summary.first_step + 1 || step == run_.options.steps ||
                       step % run_.options.report_every == 0 || !report.record.applied;
    if (shown) run_.out << FormatStep(report) << std::endl;
  }

  void AddSummary() {
    if (file_.is_open()) file_ << SummaryJson(summary) << std::endl;
  }

  RunSummary summary;

 private:
  const TrainingRun& run_;
  std::ofstream file_;
};

// One rank's training loop; lives on its thread.
class RankLoop {
 public:
  // `log` is null unless this rank reports.
  RankLoop(const TrainingRun& run, uint32_t rank, StepLog* log)
      : run_(run), rank_(rank), log_(log), model_(run.text.model) {}

  absl::Status Run() {
    const TrainOptions& options = run_.options;
    KAON_ASSIGN_OR_RETURN(plan_, MakePlan());
    KAON_ASSIGN_OR_RETURN(session_, run_.make_session(rank_));
    gradients_.dtype = options.push_dtype;
    weights_ = InitialWeights(run_.text.model, options.seed);
    KAON_ASSIGN_OR_RETURN(uint64_t step, session_->Start(weights_));
    if (log_ != nullptr) log_->summary.first_step = log_->summary.last_step = step;
    while (true) {
      KAON_RETURN_IF_ERROR(PullWeightsAs(options.pull_dtype, &step));
      KAON_RETURN_IF_ERROR(Train(&step));
      transferred_ = session_->transferred();
      if (log_ == nullptr) return absl::OkStatus();
      // A rewind may have returned the job to a step that this loop did not run itself.
      log_->summary.last_step = step;
      // Pull the fp32 masters: the workers may compute with rounded weights.
      const uint64_t trained = step;
      KAON_RETURN_IF_ERROR(PullWeightsAs(kernels::DType::kFloat32, &step));
      if (step == trained) return absl::OkStatus();
    }
  }

  const Weights& weights() const { return weights_; }
  const TransferredBytes& transferred() const { return transferred_; }

 private:
  absl::StatusOr<std::unique_ptr<BatchPlan>> MakePlan() const {
    BatchPlanOptions options;
    options.seed = run_.options.seed;
    options.num_positions = run_.text.training.num_positions();
    options.batch_size = run_.options.batch_size;
    options.shares = run_.options.split;
    KAON_ASSIGN_OR_RETURN(BatchPlan plan, BatchPlan::Create(options));
    return std::make_unique<BatchPlan>(std::move(plan));
  }

  // Trains up to the last wanted step.
  absl::Status Train(uint64_t* step) {
    const TrainOptions& options = run_.options;
    const uint64_t end =
        options.stop_after > 0 ? std::min(options.steps, options.stop_after) : options.steps;
    while (*step < end && run_.gate.MayBegin(*step + 1)) {
      const absl::Status status = Advance(step);
      // Other workers left the open step: report the newest decided one.
      if (absl::IsCancelled(status) && run_.gate.stop_requested()) break;
      KAON_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // Pulls the weights of `step`, or of the step that a rewind leads to.
  absl::Status PullWeightsAs(kernels::DType dtype, uint64_t* step) {
    pulled_.dtype = dtype;
    Allocate(weights_, &pulled_);
    return FollowRewinds(PullWeights(*step), step);
  }

  absl::Status PullWeights(uint64_t step) {
    KAON_RETURN_IF_ERROR(session_->Pull(step, &pulled_));
    Decode(pulled_, &weights_);
    return absl::OkStatus();
  }

  // Runs the next step or follows a rewind. A repeated step gets the same data.
  absl::Status Advance(uint64_t* step) {
    const absl::Status status = RunStep(*step + 1);
    if (status.ok()) ++*step;
    return FollowRewinds(status, step);
  }

  // Returns `status`. While it comes from a rewind, pulls the weights of that step and returns the
  // pull's status instead.
  absl::Status FollowRewinds(absl::Status status, uint64_t* step) {
    while (absl::IsFailedPrecondition(status)) {
      const std::optional<uint64_t> rewound = session_->TakeRewind();
      if (!rewound.has_value()) break;
      if (log_ != nullptr) {
        run_.out << "back to step " << *rewound << std::endl;
        log_->summary.first_step = std::min(log_->summary.first_step, *rewound);
      }
      *step = *rewound;
      status = PullWeights(*step);
    }
    return status;
  }

  absl::Status RunStep(uint64_t step) {
    StepReport report;
    report.tokens = run_.options.batch_size;
    const TransferredBytes before = session_->transferred();
    const absl::Time begin = SteadyNow();
    const Batch batch = run_.text.training.MakeBatch(plan_->Slice(step, rank_));
    StepContribution contribution;
    contribution.step = step;
    contribution.token_weight = batch.size();
    contribution.learning_rate_multiplier = LearningRateMultiplier(step, run_.options.steps);
    contribution.group_multipliers = run_.options.group_multipliers;
    contribution.loss = model_.LossAndGradients(weights_, batch, &raw_gradients_);
    if (rank_ == 0 && step == run_.options.poison_step) Poison();
    ScaleOneGradient();
    MultiplyGradients(static_cast<float>(session_->loss_scale()));
    Encode(raw_gradients_, &gradients_);
    contribution.gradients = &gradients_;
    for (const Absence& absence : run_.options.absences) {
      if (absence.rank != rank_) continue;
      if (step >= absence.first_step && step <= absence.last_step) contribution.takes_part = false;
    }
    report.seconds.compute = SecondsSince(begin);
    KAON_ASSIGN_OR_RETURN(const StepOutcome outcome, session_->Exchange(contribution));
    report.record = outcome.record;
    report.seconds.push = outcome.push_seconds;
    report.seconds.decide = outcome.decide_seconds;
    const absl::Time pull = SteadyNow();
    KAON_RETURN_IF_ERROR(PullWeights(step));
    report.seconds.pull = SecondsSince(pull);
    const TransferredBytes after = session_->transferred();
    report.push_bytes = after.pushed - before.pushed;
    report.pull_bytes = after.pulled - before.pulled;
    if (log_ != nullptr) log_->Add(report);
    return absl::OkStatus();
  }

  void ScaleOneGradient() {
    const std::vector<ModelParameter> parameters = ModelParameters(run_.text.model);
    for (size_t id = 0; id < parameters.size(); ++id) {
      if (parameters[id].name != run_.options.scale_gradient.parameter) continue;
      for (float& value : raw_gradients_[id]) {
        value *= static_cast<float>(run_.options.scale_gradient.factor);
      }
    }
  }

  // Has the effect of multiplying the loss ([T2]). The shards divide by the scale.
  void MultiplyGradients(float loss_scale) {
    if (loss_scale == 1) return;
    for (std::vector<float>& tensor : raw_gradients_) {
      for (float& value : tensor) value *= loss_scale;
    }
  }

  // Makes one element NaN in input.weight, the first hidden matrix.
  void Poison() { raw_gradients_[1][0] = std::numeric_limits<float>::quiet_NaN(); }

  const TrainingRun& run_;
  const uint32_t rank_;
  StepLog* const log_;
  LanguageModel<float> model_;
  std::unique_ptr<BatchPlan> plan_;
  std::unique_ptr<TrainingSession> session_;
  Weights weights_;
  Weights raw_gradients_;
  TensorBuffers gradients_;
  TensorBuffers pulled_;
  TransferredBytes transferred_;
};

double ValidationLoss(const TrainingText& text, const Weights& weights) {
  constexpr int64_t kPositionsPerBatch = 512;
  LanguageModel<float> model(text.model);
  double loss = 0;
  const int64_t total = text.validation.num_positions();
  for (int64_t first = 0; first < total; first += kPositionsPerBatch) {
    std::vector<int64_t> positions(std::min(kPositionsPerBatch, total - first));
    std::iota(positions.begin(), positions.end(), first);
    loss += model.Loss(weights, text.validation.MakeBatch(positions)) * positions.size();
  }
  return loss / total;
}

absl::Status AddParameters(const TrainingRun& run, RunSummary* summary) {
  KAON_ASSIGN_OR_RETURN(
      const v1::RegisterBody body,
      job::Resolve(client::ToProto(MakeJobDefinition(run.options, run.text.model))));
  const v1::JobDefinition& job = body.definition();
  const std::vector<uint64_t> calls =
      run.newton_schulz_calls ? run.newton_schulz_calls()
                              : std::vector<uint64_t>(job.parameters_size(), summary->applied);
  for (int id = 0; id < job.parameters_size(); ++id) {
    ParameterSummary parameter;
    parameter.name = job.parameters(id).name();
    parameter.shape.assign(job.parameters(id).shape().begin(), job.parameters(id).shape().end());
    parameter.group = body.placement().parameters(id).group();
    parameter.reason = body.placement().parameters(id).route_reason();
    parameter.updates = summary->applied;
    parameter.orthogonalized =
        job.groups(job::GroupIndex(job, parameter.group)).rule() == v1::RULE_MUON;
    if (parameter.orthogonalized) parameter.newton_schulz_updates = calls[id];
    summary->parameters.push_back(parameter);
  }
  return absl::OkStatus();
}

void RunRanks(const TrainingRun& run, std::vector<std::unique_ptr<RankLoop>>& ranks) {
  std::vector<std::thread> threads;
  for (const std::unique_ptr<RankLoop>& rank : ranks) {
    threads.emplace_back([&run, loop = rank.get()] {
      const absl::Status status = loop->Run();
      const bool stopped = absl::IsCancelled(status) && run.gate.stop_requested();
      if (!status.ok() && !stopped) run.gate.Fail(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

absl::StatusOr<TrainingText> ReadTrainingText(const TrainOptions& options) {
  KAON_ASSIGN_OR_RETURN(const Corpus corpus, ReadCorpus(options.corpus_dir));
  const Vocabulary vocabulary(corpus.training);
  ModelShape model = options.model;
  model.vocabulary = vocabulary.size();
  return TrainingText{model, TokenText(corpus.training, vocabulary, model.context),
                      TokenText(corpus.validation, vocabulary, model.context)};
}

absl::StatusOr<RunSummary> RunTraining(const TrainingRun& run) {
  const TrainOptions& options = run.options;
  const TrainingText& text = run.text;
  StepLog log(run);
  KAON_RETURN_IF_ERROR(log.Open());
  RunSummary& summary = log.summary;
  summary.bigram_loss = NgramModel(text.training, 2, text.model.vocabulary).Loss(text.validation);
  summary.fivegram_loss = NgramModel(text.training, 5, text.model.vocabulary).Loss(text.validation);
  run.out << absl::StrFormat(
                 "%d training and %d validation characters, vocabulary %d; validation loss of a "
                 "bigram table %.4f, of a 5-gram table %.4f",
                 text.training.num_positions(), text.validation.num_positions(),
                 text.model.vocabulary, summary.bigram_loss, summary.fivegram_loss)
          << std::endl;
  std::vector<std::unique_ptr<RankLoop>> ranks;
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    if (options.rank.has_value() && rank != *options.rank) continue;
    ranks.push_back(std::make_unique<RankLoop>(run, rank, ranks.empty() ? &log : nullptr));
  }
  const absl::Time begin = SteadyNow();
  RunRanks(run, ranks);
  summary.seconds = SecondsSince(begin);
  summary.stopped = run.gate.stop_requested() && summary.last_step < options.steps;
  KAON_RETURN_IF_ERROR(run.gate.failure());
  for (const std::unique_ptr<RankLoop>& rank : ranks) {
    summary.push_bytes += rank->transferred().pushed;
    summary.pull_bytes += rank->transferred().pulled;
    summary.shm_bytes += rank->transferred().shared;
  }
  const Weights& weights = ranks[0]->weights();
  for (size_t id = 0; id < weights.size(); ++id) {
    summary.weights_digest += kernels::TensorDigest(id, kernels::kWeightSlot, weights[id]);
  }
  summary.validation_loss = ValidationLoss(text, weights);
  KAON_RETURN_IF_ERROR(AddParameters(run, &summary));
  log.AddSummary();
  return summary;
}

}  // namespace kaon::train
