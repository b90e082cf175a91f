#include "tests/simulation/seeds.h"

#include "absl/strings/str_cat.h"

namespace kaon::simulation {

namespace {

// SplitMix64. Its draws are independent of the draws of the seed itself.
uint64_t Mix(uint64_t seed) {
  seed += 0x9e3779b97f4a7c15;
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111eb;
  return seed ^ (seed >> 31);
}

}  // namespace

ClusterOptions OptionsOf(uint64_t seed) {
  ClusterOptions options;
  options.seed = seed;
  options.num_shards = 1 + seed % 4;
  options.num_coordinators = 1 + (seed / 4) % 3;
  options.num_workers = 1 + (seed / 12) % 3;
  options.loss = (seed % 3) * 0.03;
  const absl::Duration between[] = {absl::Milliseconds(150), absl::Milliseconds(400),
                                    absl::Seconds(1), absl::Seconds(2)};
  options.time_between_faults = between[(seed / 2) % 4];
  const double shard_faults[] = {0.8, 0.5, 0.2};
  options.shard_faults = shard_faults[(seed / 3) % 3];
  options.flips = seed % 7 == 3;
  options.shrink = seed % 5 < 2;
  options.skewed_clocks = seed % 2 == 1;
  const uint64_t mixed = Mix(seed);
  // Mode `none`, and `interval(K)`.
  options.durable = mixed % 10 != 0;
  const uint32_t steps[] = {1, 2, 3, 5, 8};
  if (mixed % 10 > 7) options.interval_steps = steps[(mixed >> 8) % 5];
  if ((mixed >> 16) % 8 == 0) {
    options.past_faults = true;
    options.fault_phase = absl::Seconds(3);
  }
  options.checkpoints = (mixed >> 24) % 6 == 0;
  options.checkpoint_every_steps = (mixed >> 32) % 2 == 0 ? 3 : 0;
  // A job of one worker cannot lose one.
  options.fail = !options.shrink && options.num_workers > 1 && (mixed >> 40) % 3 == 0;
  options.step_deadline = Mix(mixed) % 2 == 0;
  options.holder = options.shrink && options.step_deadline && options.num_workers > 1 &&
                   Mix(Mix(mixed)) % 4 != 0;
  if (options.holder) {
    // The last steps are held while nothing else is wrong.
    options.past_faults = true;
    options.fault_phase = absl::Seconds(3);
  }
  options.deletions = !options.shrink && (mixed >> 48) % 4 == 0;
  options.nvme = (mixed >> 56) % 3 == 0;
  return options;
}

ClusterOptions ModelSizedOptionsOf(uint64_t seed) {
  ClusterOptions options = OptionsOf(seed);
  options.num_shards = 3;
  options.num_coordinators = 2;
  options.num_workers = 3;
  options.num_steps = 41;
  options.loss = (seed % 3) * 0.06;
  options.durable = true;
  options.past_faults = false;
  options.deletions = false;
  options.fault_phase = absl::Seconds(15);
  options.time_between_faults = absl::Milliseconds(375);
  return options;
}

std::string Describe(const ClusterOptions& options) {
  std::string text = absl::StrCat(
      options.num_shards, " shards, ", options.num_coordinators, " coordinators, ",
      options.num_workers, " workers, ", options.num_steps, " steps, mode ",
      !options.durable              ? "none"
      : options.interval_steps == 0 ? "journal"
                                    : absl::StrCat("interval(", options.interval_steps, ")"),
      ", loss ", options.loss, ", duplication ", options.duplication, ", a fault each ",
      absl::FormatDuration(options.time_between_faults), " for ",
      absl::FormatDuration(options.fault_phase), ", of shards ", options.shard_faults);
  if (options.past_faults) absl::StrAppend(&text, ", on past the faults");
  if (options.shrink) absl::StrAppend(&text, ", worker_loss shrink");
  if (options.fail) absl::StrAppend(&text, ", worker_loss fail");
  if ((options.shrink || options.fail) && options.step_deadline) {
    absl::StrAppend(&text, ", step_seconds");
  }
  if (options.holder) absl::StrAppend(&text, ", a worker holds steps");
  if (options.checkpoints) {
    absl::StrAppend(&text, ", checkpoints (by themselves each ", options.checkpoint_every_steps,
                    " steps)");
  }
  if (options.deletions) absl::StrAppend(&text, ", deletions");
  if (options.nvme) absl::StrAppend(&text, ", parameters on disks");
  if (options.flips) absl::StrAppend(&text, ", flipped bits");
  if (options.skewed_clocks) absl::StrAppend(&text, ", skewed clocks");
  if (options.bug != SeededBug::kNone) {
    absl::StrAppend(&text, ", seeded bug ", static_cast<int>(options.bug));
  }
  return text;
}

}  // namespace kaon::simulation
