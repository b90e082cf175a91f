// `kaonctl steps --follow`: prints each new entry of the log once, as a JSON object a line, until
// the reader of the output goes away or Ctrl-C. One thread.
#ifndef KAON_SERVER_ADMIN_CLI_STEPS_FOLLOW_STEPS_H_
#define KAON_SERVER_ADMIN_CLI_STEPS_FOLLOW_STEPS_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"

namespace kaon::admin_cli {

// Reads the newest entries of the log, at most `limit` of them.
using ReadNewest = std::function<absl::StatusOr<v1::StepHistoryResponse>(uint32_t limit)>;

// Turns histories into lines.
class StepLines {
 public:
  // Returns the lines of the entries after the last one that was returned. Entries that were
  // decided since, but are not in `history`, are lost: `lost` says whether there may be such.
  std::string New(const v1::StepHistoryResponse& history, bool* lost);

 private:
  uint64_t last_position_ = 0;
};

// Prints the newest `limit` entries, then each new one. Asks as KeepAsking says.
absl::Status FollowSteps(const ReadNewest& read, uint32_t limit, const std::function<bool()>& pause,
                         std::ostream& out, std::ostream& errors);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_STEPS_FOLLOW_STEPS_H_
