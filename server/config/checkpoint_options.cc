#include "server/config/checkpoint_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"

namespace kaon::config {

namespace {

constexpr uint64_t kMaxEverySteps = uint64_t{1} << 40;
// Fewer good ones are never left.
constexpr uint64_t kMinKeep = 2;
constexpr uint64_t kMaxKeep = 1000;

// Leaves `number` alone when nothing is given.
absl::Status ReadNumber(absl::string_view name, const std::string& text, uint64_t min, uint64_t max,
                        uint64_t* number) {
  if (text.empty()) return absl::OkStatus();
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is \"", text, "\", must be ", min, " .. ", max));
  }
  *number = value;
  return absl::OkStatus();
}

}  // namespace

LooseFlag CheckpointDirectoryFlag(CheckpointFlags& flags) {
  return {"checkpoint_dir", "directory of checkpoints, which coordinators and all shards see",
          &flags.directory};
}

std::vector<LooseFlag> CheckpointPolicyFlags(CheckpointFlags& flags) {
  return {{"checkpoint_every_steps",
           "take a checkpoint each time so many steps are applied (0: never)", &flags.every_steps},
          {"checkpoint_keep", "so many of the newest are kept after each (3)", &flags.keep}};
}

absl::Status ReadCheckpointFlags(const CheckpointFlags& flags, CheckpointOptions* options) {
  options->directory = flags.directory;
  KAON_RETURN_IF_ERROR(ReadNumber("checkpoint_every_steps", flags.every_steps, 0, kMaxEverySteps,
                                  &options->every_steps));
  KAON_RETURN_IF_ERROR(
      ReadNumber("checkpoint_keep", flags.keep, kMinKeep, kMaxKeep, &options->keep));
  if (options->every_steps == 0 || !options->directory.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("checkpoint_every_steps is ", options->every_steps,
                                                 ", checkpoint_dir must be given"));
}

}  // namespace kaon::config
