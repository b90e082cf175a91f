#include "server/coordinator/page/status_feed.h"

#include <map>
#include <utility>

#include "job/definition.h"
#include "kernels/steady_clock.h"
#include "server/monitor/wall_clock.h"

namespace kaon::coordinator {

namespace {

constexpr absl::Duration kLooksFor = absl::Seconds(15);
constexpr absl::Duration kRatioPeriod = absl::Seconds(10);
constexpr absl::Duration kCheckpointPeriod = absl::Seconds(10);
constexpr uint32_t kNewest = 40;
constexpr uint32_t kRecords = 1000;
// Pages of records in one tick: a long log appears within seconds, and a tick ends.
constexpr int kPages = 20;

// Returns the smallest parameter of each group, by group. A matrix comes before a vector, as it
// shows what Muon does.
std::map<std::string, std::string> ParametersToSample(const v1::JobDescription& job) {
  struct Choice {
    bool is_matrix = false;
    uint64_t elements = 0;
    std::string name;
  };
  std::map<std::string, Choice> best;
  const v1::JobDefinition& definition = job.definition();
  for (int i = 0; i < definition.parameters_size(); ++i) {
    const std::string& group = job.placement().parameters(i).group();
    if (group.empty()) continue;
    const v1::ParameterSpec& spec = definition.parameters(i);
    const Choice choice = {spec.shape_size() >= 2, job::NumElements(spec), spec.name()};
    const auto [at, is_first] = best.emplace(group, choice);
    const Choice& other = at->second;
    const bool better =
        choice.is_matrix != other.is_matrix ? choice.is_matrix : choice.elements < other.elements;
    if (!is_first && better) at->second = choice;
  }
  std::map<std::string, std::string> names;
  for (const auto& [group, choice] : best) names[group] = choice.name;
  return names;
}

}  // namespace

void StatusFeed::Touch() {
  MutexLock lock(mu_);
  touched_ = SteadyNow();
}

void StatusFeed::Tick() {
  bool ratios = false;
  {
    MutexLock lock(mu_);
    const absl::Time now = SteadyNow();
    if (now - touched_ > kLooksFor) return;
    ratios = now - ratios_asked_ >= kRatioPeriod;
    if (ratios) ratios_asked_ = now;
  }
  if (ratios) AskRatios();
  // It loads every manifest.
  if (checkpoints_.Age() >= kCheckpointPeriod && !checkpoints_asked_.exchange(true)) {
    AskCheckpoints();
  }
  if (!asked_.exchange(true)) AskStatus();
}

void StatusFeed::AskStatus() {
  queries_.Status([self = shared_from_this()](absl::StatusOr<v1::GetStatusResponse> status) {
    auto data = std::make_shared<PageFacts>();
    if (!status.ok()) {
      // The page keeps the facts that were known, with the reason.
      if (const auto before = self->data_.Get(); before != nullptr) *data = *before;
      data->problem = status.status();
      return self->Publish(data);
    }
    data->status = *std::move(status);
    {
      MutexLock lock(self->mu_);
      if (self->job_ != data->status.job()) self->curves_.Clear();
      self->job_ = data->status.job();
    }
    self->AskNewest(std::move(data));
  });
}

void StatusFeed::AskNewest(std::shared_ptr<PageFacts> data) {
  v1::StepHistoryRequest request;
  request.set_limit(kNewest);
  request.set_with_phases(true);
  queries_.History(
      request, [self = shared_from_this(), data](absl::StatusOr<v1::StepHistoryResponse> newest) {
        if (newest.ok()) data->newest = *std::move(newest);
        self->AskRecords(data, kPages);
      });
}

void StatusFeed::AskRecords(std::shared_ptr<PageFacts> data, int more) {
  const uint64_t next = curves_.next_position();
  const auto& newest = data->newest.records();
  if (more == 0 || newest.empty() || newest.rbegin()->plan().position() < next) {
    return Publish(data);
  }
  if (newest.begin()->plan().position() <= next) {
    curves_.Add(data->newest);
    return Publish(data);
  }
  queries_.Records(next, kRecords,
                   [self = shared_from_this(), data, more,
                    next](const absl::StatusOr<v1::StepHistoryResponse>& records) {
                     if (records.ok()) self->curves_.Add(*records);
                     // Without progress another page would be the same.
                     const bool goes_on = self->curves_.next_position() > next;
                     self->AskRecords(data, goes_on ? more - 1 : 0);
                   });
}

void StatusFeed::AskCheckpoints() {
  queries_.Checkpoints(
      "", [self = shared_from_this()](absl::StatusOr<v1::ListCheckpointsResponse> list) {
        CheckpointFacts facts;
        facts.problem = list.status();
        facts.unix_millis = monitor::UnixMillisNow();
        if (list.ok()) facts.list = *std::move(list);
        self->checkpoints_.Set(std::move(facts));
        self->checkpoints_asked_ = false;
      });
}

void StatusFeed::Publish(const std::shared_ptr<PageFacts>& data) {
  if (const auto facts = checkpoints_.Get(); facts != nullptr) {
    data->checkpoints = facts->list;
    data->checkpoints_problem = facts->problem;
    data->checkpoints_unix_millis = facts->unix_millis;
  } else {
    data->checkpoints_problem = absl::UnavailableError("The list is being read.");
  }
  // A reader that has seen these values may ask for the next ones at once.
  asked_ = false;
  data_.Set(std::move(*data));
}

void StatusFeed::AskRatios() {
  queries_.Job("", [self = shared_from_this()](const absl::StatusOr<v1::JobDescription>& job) {
    if (!job.ok() || job->applied_step() == 0) return;
    for (const auto& [group, parameter] : ParametersToSample(*job)) {
      self->AskRatio(job->definition().name(), group, parameter, job->applied_step());
    }
  });
}

void StatusFeed::AskRatio(const std::string& job, const std::string& group,
                          const std::string& parameter, uint64_t step) {
  v1::GetParameterStatsRequest request;
  request.set_job(job);
  request.set_parameter(parameter);
  queries_.ParameterStats(
      request, [self = shared_from_this(), group, parameter,
                step](const absl::StatusOr<v1::GetParameterStatsResponse>& response) {
        if (!response.ok()) return;
        const v1::ParameterStats& stats = response->stats();
        if (!stats.has_update_to_weight_ratio()) return;
        self->curves_.AddRatio(group, parameter, step, stats.update_to_weight_ratio());
      });
}

}  // namespace kaon::coordinator
