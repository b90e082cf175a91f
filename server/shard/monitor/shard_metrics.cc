#include "server/shard/monitor/shard_metrics.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/config/durability.h"

namespace kaon::shard {

namespace {

constexpr double kMicrosecond = 1e-6;

void SetTier(const v1::TierStatus& tier, metrics::MetricPage& page) {
  const auto set = [&](const char* name, double value) { page.Set(name, value, {tier.name()}); };
  set("kaon_shard_parameters", static_cast<double>(tier.parameters()));
  set("kaon_shard_tier_used_bytes", static_cast<double>(tier.used_bytes()));
  set("kaon_shard_tier_budget_bytes", static_cast<double>(tier.capacity_bytes()));
  if (tier.path().empty()) return;
  set("kaon_shard_tier_read_bytes_total", static_cast<double>(tier.read_bytes()));
  set("kaon_shard_tier_written_bytes_total", static_cast<double>(tier.written_bytes()));
  set("kaon_shard_tier_read_seconds_total", tier.read_seconds());
  set("kaon_shard_tier_write_seconds_total", tier.write_seconds());
  set("kaon_shard_tier_hits_total", static_cast<double>(tier.hits()));
  set("kaon_shard_tier_misses_total", static_cast<double>(tier.misses()));
  set("kaon_shard_tier_stall_seconds_total", tier.waited_seconds());
}

void SetSnapshot(const v1::SnapshotStatus& snapshot, metrics::MetricPage& page) {
  page.Set("kaon_shard_snapshot_failed", !snapshot.problem().empty());
  if (snapshot.position() == 0) return;
  page.Set("kaon_shard_snapshot_step", static_cast<double>(snapshot.step()));
  page.Set("kaon_shard_snapshot_bytes", static_cast<double>(snapshot.bytes()));
  page.Set("kaon_shard_snapshot_seconds", snapshot.seconds());
}

}  // namespace

void PhaseSums::Add(const google::protobuf::RepeatedPtrField<v1::StepPhases>& steps) {
  for (int i = 0; i + 1 < steps.size(); ++i) {
    const v1::StepPhases& step = steps[i];
    if (step.position() < next_position_) continue;
    next_position_ = step.position() + 1;
    steps_.Add(static_cast<double>(step.total_microseconds()) * kMicrosecond);
    for (const v1::Phase& phase : step.phases()) {
      Seconds& seconds = by_phase_[phase.name()];
      seconds.busy += static_cast<double>(phase.busy_microseconds()) * kMicrosecond;
      seconds.hidden += static_cast<double>(phase.hidden_microseconds()) * kMicrosecond;
    }
  }
}

void PhaseSums::Set(metrics::MetricPage& page) const {
  page.Set("kaon_shard_step_seconds", steps_);
  for (const auto& [phase, seconds] : by_phase_) {
    page.Set("kaon_shard_phase_seconds_total", seconds.busy, {phase});
    page.Set("kaon_shard_phase_hidden_seconds_total", seconds.hidden, {phase});
  }
}

void SetShard(const v1::DescribeShardResponse& shard, metrics::MetricPage& page) {
  const v1::ShardState& state = shard.state();
  page.Set("kaon_shard_info", 1,
           {absl::StrCat(shard.shard()), shard.backend(),
            config::DurabilityText(state.durability(), state.interval_steps()),
            shard.device_class(), shard.memory_tier()});
  page.Set("kaon_shard_applied_step", static_cast<double>(state.applied_step()));
  page.Set("kaon_shard_steps_total", static_cast<double>(shard.applied_steps()), {"applied"});
  page.Set("kaon_shard_steps_total", static_cast<double>(shard.skipped_steps()), {"skipped"});
  page.Set("kaon_shard_awaited_workers", shard.awaited_ranks_size());
  page.Set("kaon_shard_memory_used_bytes", static_cast<double>(shard.used_bytes()));
  page.Set("kaon_shard_memory_budget_bytes", static_cast<double>(shard.capacity_bytes()));
  page.Set("kaon_shard_staging_budget_bytes", static_cast<double>(shard.staging_bytes()));
  double state_bytes = 0;
  for (const v1::ParameterState& parameter : shard.parameters()) {
    state_bytes += static_cast<double>(parameter.state_bytes());
  }
  page.Set("kaon_shard_state_bytes", state_bytes);
  for (const v1::TierStatus& tier : shard.tiers()) SetTier(tier, page);
  page.Set("kaon_shard_journal_bytes", static_cast<double>(shard.journal().bytes()));
  page.Set("kaon_shard_read_only", !shard.journal().read_only_reason().empty());
  page.Set("kaon_shard_recovery_seconds", shard.journal().recovery_seconds());
  page.Set("kaon_shard_data_loss", !state.data_loss().empty());
  SetSnapshot(shard.snapshot(), page);
}

DiskSpace ReadDisk(const std::string& directory) {
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(directory, failed);
  if (failed) return {};
  return {space.available, space.capacity};
}

void SetDisk(const DiskSpace& disk, metrics::MetricPage& page) {
  if (disk.size == 0) return;
  page.Set("kaon_shard_disk_free_bytes", static_cast<double>(disk.free));
  page.Set("kaon_shard_disk_size_bytes", static_cast<double>(disk.size));
}

}  // namespace kaon::shard
