#include "server/preflight/preflight.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "job/definition.h"
#include "job/names.h"
#include "job/rule_config.h"
#include "kernels/backend.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"
#include "server/config/durability.h"
#include "server/coordinator/machine/registration.h"
#include "server/shard/complete_config.h"

namespace kaon::preflight {

namespace {

constexpr char kFrozen[] = "(frozen)";
// Descriptors that a service may open by default.
constexpr uint64_t kOpenFiles = 65536;

class Backends {
 public:
  // Returns a backend of this machine that computes as the shard does.
  absl::StatusOr<kernels::Backend*> Get(const ShardOffer& offer) {
    std::unique_ptr<kernels::Backend>& made =
        made_[std::make_tuple(offer.backend, offer.gemm, offer.threads)];
    if (made == nullptr) {
      kernels::BackendOptions options;
      options.name = offer.backend;
      options.gemm = offer.gemm;
      options.threads = static_cast<int>(offer.threads);
      absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::CreateBackend(options);
      if (!backend.ok() && !offer.gemm.empty()) {
        // The products of this machine may need another workspace.
        options.gemm.clear();
        backend = kernels::CreateBackend(options);
      }
      KAON_ASSIGN_OR_RETURN(made, std::move(backend));
    }
    return made.get();
  }

 private:
  std::map<std::tuple<std::string, std::string, uint32_t>, std::unique_ptr<kernels::Backend>> made_;
};

// Bytes of one parameter, as a group of its own.
GroupNeeds NeedsOf(const v1::ParameterSpec& spec, const std::optional<kernels::RuleConfig>& rule) {
  GroupNeeds needs;
  needs.parameters = 1;
  needs.elements = job::NumElements(spec);
  needs.weight_bytes = needs.elements * sizeof(float);
  needs.sum_bytes = needs.weight_bytes;
  if (!rule.has_value()) return needs;
  needs.next_weight_bytes = needs.weight_bytes;
  const std::vector<uint64_t> shape(spec.shape().begin(), spec.shape().end());
  for (const kernels::StateSlot& slot : kernels::StateSlots(*rule, shape)) {
    needs.state_bytes += static_cast<uint64_t>(slot.num_bytes);
  }
  return needs;
}

void Add(const GroupNeeds& one, GroupNeeds& to) {
  to.parameters += one.parameters;
  to.elements += one.elements;
  to.weight_bytes += one.weight_bytes;
  to.next_weight_bytes += one.next_weight_bytes;
  to.state_bytes += one.state_bytes;
  to.sum_bytes += one.sum_bytes;
}

void NoteMatrices(const v1::ParameterSpec& spec, const kernels::RuleConfig& rule,
                  LargestMatrix& largest) {
  const std::vector<uint64_t> shape(spec.shape().begin(), spec.shape().end());
  for (const kernels::ScaledMatrices& one : kernels::OrthogonalizedMatrices(rule, shape)) {
    const auto rows = static_cast<uint64_t>(one.rows);
    const auto cols = static_cast<uint64_t>(one.cols);
    if (rows * cols <= largest.rows * largest.cols) continue;
    largest = {spec.name(), rows, cols};
  }
}

// Estimates the files of a shard (docs/operating.md, Size). `state_bytes`: those of a
// snapshot.
absl::StatusOr<uint64_t> DiskBytes(const ShardOffer& offer, const shard::ShardNeeds& needs,
                                   uint64_t state_bytes) {
  KAON_ASSIGN_OR_RETURN(const config::Durability durability,
                        config::ParseDurability(offer.durability));
  if (durability.mode == v1::DURABILITY_MODE_NONE) return 0;
  const uint64_t snapshots = 3 * state_bytes;
  if (durability.mode == v1::DURABILITY_MODE_INTERVAL) return snapshots;
  uint64_t memory_bytes = 0;
  for (const v1::ParameterState& parameter : needs.parameters) {
    memory_bytes += parameter.state_bytes();
  }
  return snapshots + 2 * shard::SnapshotJournalBytes(memory_bytes);
}

// Adds the parameters of the job to the report. Returns the bytes of a snapshot, and the elements,
// of every shard.
std::vector<GroupNeeds> AddParameters(const v1::RegisterBody& body, size_t num_shards,
                                      Report& report) {
  const v1::JobDefinition& job = body.definition();
  for (const v1::ParameterGroup& group : job.groups()) {
    GroupNeeds& row = report.groups.emplace_back();
    row.group = group.name();
    row.rule = job::NameOf(group.rule());
  }
  GroupNeeds frozen;
  frozen.group = kFrozen;
  std::vector<GroupNeeds> by_shard(num_shards);
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterSpec& spec = job.parameters(id);
    const v1::ParameterPlacement& placement = body.placement().parameters(id);
    const int group = job::GroupIndex(job, placement.group());
    std::optional<kernels::RuleConfig> rule;
    if (group >= 0) {
      rule = job::RuleConfigOf(job.groups(group), spec, placement);
      NoteMatrices(spec, *rule, report.largest_matrix);
    }
    const GroupNeeds needs = NeedsOf(spec, rule);
    Add(needs, group >= 0 ? report.groups[group] : frozen);
    Add(needs, report.total);
    Add(needs, by_shard[placement.shard()]);
    report.pull_bytes += needs.weight_bytes;
    if (rule.has_value()) report.push_bytes += needs.weight_bytes;
  }
  if (frozen.parameters > 0) report.groups.push_back(frozen);
  return by_shard;
}

}  // namespace

absl::StatusOr<std::vector<ShardOffer>> OffersOf(v1::ShardConfig config, uint32_t count) {
  // A shard that does not run needs no directory.
  config.set_data_dir("-");
  if (config.nvme_bytes() > 0) config.add_nvme_dirs("-");
  config.set_shm_sessions(shard::DefaultShmSessions(config.host_memory_bytes(), kOpenFiles));
  KAON_ASSIGN_OR_RETURN(config, shard::CompleteConfig(config));
  ShardOffer offer;
  offer.backend = config.backend();
  offer.threads = config.threads();
  offer.durability = config.durability();
  offer.memory.capacity_bytes = config.host_memory_bytes();
  offer.memory.reserved_bytes = shard::ReservedBytes(config);
  if (config.device_memory_bytes() > 0) {
    offer.memory = {config.device_memory_bytes(), 0, 0};
  }
  offer.memory.staging_bytes = config.staging_bytes();
  offer.memory.nvme_bytes = config.nvme_bytes();
  offer.memory.nvme_staging_bytes = config.nvme_staging_bytes();
  return std::vector<ShardOffer>(count, offer);
}

absl::StatusOr<std::vector<ShardOffer>> OffersOf(const v1::GetStatusResponse& cluster) {
  std::vector<ShardOffer> offers;
  for (const v1::ShardStatus& shard : cluster.shards()) {
    if (!shard.has_description()) {
      return absl::UnavailableError(
          absl::StrCat("shard ", shard.shard(), " at ", shard.address(), ": ",
                       shard.problem().empty() ? "does not answer" : shard.problem(),
                       "; give --shards and --host-memory-bytes to go without it"));
    }
    const v1::DescribeShardResponse& facts = shard.description();
    const std::pair<std::string, std::string> backend =
        absl::StrSplit(facts.backend(), absl::MaxSplits('/', 1));
    ShardOffer& offer = offers.emplace_back();
    offer.address = shard.address();
    offer.backend = backend.first;
    if (backend.first == "cpu") offer.gemm = backend.second;
    offer.threads = std::max<uint32_t>(1, facts.compute_threads());
    offer.durability =
        config::DurabilityText(facts.state().durability(), facts.state().interval_steps());
    offer.memory.capacity_bytes = facts.capacity_bytes();
    offer.memory.staging_bytes = facts.staging_bytes();
    // A shard without a job uses what holds no tensor.
    v1::ShardConfig config;
    for (const v1::TierStatus& tier : facts.tiers()) {
      if (tier.path().empty()) continue;
      offer.memory.nvme_bytes = tier.capacity_bytes();
      offer.memory.nvme_files = 1 + std::count(tier.path().begin(), tier.path().end(), ',');
      offer.memory.nvme_staging_bytes = tier.staging_bytes();
      config.set_nvme_staging_bytes(tier.staging_bytes());
    }
    config.set_shm_sessions(shard::DefaultShmSessions(facts.capacity_bytes(), kOpenFiles));
    if (facts.memory_tier() == "host" || backend.first == "cpu") {
      offer.memory.reserved_bytes =
          cluster.job().empty() ? facts.used_bytes() : shard::ReservedBytes(config);
    }
  }
  return offers;
}

absl::StatusOr<Report> Run(const v1::JobDefinition& job, const std::vector<ShardOffer>& offers) {
  coordinator::PlacementLimits limits;
  limits.num_shards = static_cast<int>(offers.size());
  KAON_ASSIGN_OR_RETURN(const v1::RegisterBody body, coordinator::MakeRegistration(job, limits));
  Report report;
  report.job = body.definition().name();
  report.world_size = body.definition().world_size();
  const std::vector<GroupNeeds> by_shard = AddParameters(body, offers.size(), report);
  Backends backends;
  for (size_t i = 0; i < offers.size(); ++i) {
    ShardVerdict& verdict = report.shards.emplace_back();
    verdict.offer = offers[i];
    verdict.elements = by_shard[i].elements;
    KAON_ASSIGN_OR_RETURN(kernels::Backend * backend, backends.Get(offers[i]));
    const auto shard = static_cast<uint32_t>(i);
    absl::StatusOr<shard::ShardNeeds> needs = shard::Admit(body, shard, *backend, offers[i].memory);
    verdict.refusal = needs.status();
    // The needs, also of a job that does not fit.
    shard::ShardMemory unlimited = offers[i].memory;
    unlimited.capacity_bytes = std::numeric_limits<uint64_t>::max();
    unlimited.staging_bytes = std::numeric_limits<uint64_t>::max();
    if (unlimited.nvme_bytes > 0) {
      unlimited.nvme_bytes = std::numeric_limits<uint64_t>::max();
      unlimited.nvme_staging_bytes = std::numeric_limits<uint64_t>::max();
    }
    if (!needs.ok()) needs = shard::Admit(body, shard, *backend, unlimited);
    KAON_ASSIGN_OR_RETURN(verdict.needs, std::move(needs));
    KAON_ASSIGN_OR_RETURN(
        verdict.disk_bytes,
        DiskBytes(offers[i], verdict.needs, by_shard[i].weight_bytes + by_shard[i].state_bytes));
  }
  return report;
}

absl::Status JobFits(const Report& report) {
  for (size_t i = 0; i < report.shards.size(); ++i) {
    const absl::Status& refusal = report.shards[i].refusal;
    if (refusal.ok()) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("job ", report.job, " does not fit: shard ", i, ": ", refusal.message()));
  }
  return absl::OkStatus();
}

}  // namespace kaon::preflight
