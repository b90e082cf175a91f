// Says what to do after DATA_LOSS: every such text of a shard and of a coordinator names it. Any
// thread.
#ifndef KAON_SERVER_CONFIG_LOSS_REMEDY_H_
#define KAON_SERVER_CONFIG_LOSS_REMEDY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kaon::config {

inline constexpr char kRestoreCommand[] = "kaonctl checkpoint restore";

// Ends "this shard holds " for a shard without a job, which a worker may ask before the coordinator
// has found the loss.
inline constexpr char kHoldsNone[] = "none; if it held one, its state is lost: see kaonctl status";

// Returns `why` a shard never votes again, and the remedy.
inline std::string LossOfShard(absl::string_view why) {
  if (absl::StrContains(why, kRestoreCommand)) return std::string(why);
  return absl::StrCat(
      why, "; to go on, start this shard on an empty data directory and run: ", kRestoreCommand);
}

// Returns `stopped` with the remedy, if it is DATA_LOSS that does not name one yet.
inline absl::Status WithRemedy(const absl::Status& stopped) {
  if (!absl::IsDataLoss(stopped) || absl::StrContains(stopped.message(), kRestoreCommand)) {
    return stopped;
  }
  return absl::DataLossError(absl::StrCat(
      stopped.message(), "; to go on from the newest checkpoint, run: ", kRestoreCommand));
}

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_LOSS_REMEDY_H_
