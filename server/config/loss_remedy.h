// Says what to do after a job's state is gone: every text of DATA_LOSS names it. Any thread.
#ifndef KAON_SERVER_CONFIG_LOSS_REMEDY_H_
#define KAON_SERVER_CONFIG_LOSS_REMEDY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/text.h"

namespace kaon::config {

inline constexpr char kRestoreCommand[] = "kaonctl checkpoint restore";

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

inline absl::Status JobWasDeleted(absl::string_view job) {
  return absl::NotFoundError(absl::StrCat("job \"", job, "\" was deleted"));
}

// Returns NOT_FOUND for a call about `job` ("pushed", "pulled") on a shard that holds another job,
// `held`, or none. `deleted`: the job that it held last. A worker may ask an empty shard before the
// coordinator has found the loss.
inline absl::Status NotHeld(absl::string_view job, absl::string_view call, absl::string_view held,
                            absl::string_view deleted) {
  if (held.empty() && !deleted.empty() && (job.empty() || job == deleted)) {
    return JobWasDeleted(deleted);
  }
  return absl::NotFoundError(absl::StrCat(
      "job '", proto::Excerpt(job), "' ", call, ", this shard holds ",
      held.empty() ? absl::StrCat("none; if it held one, its state is lost; run: ", kRestoreCommand)
                   : absl::StrCat("'", held, "'")));
}

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_LOSS_REMEDY_H_
