// Repeats a question to the cluster for the commands that print what is new. One thread.
#ifndef KAON_SERVER_ADMIN_CLI_LIVE_KEEP_ASKING_H_
#define KAON_SERVER_ADMIN_CLI_LIVE_KEEP_ASKING_H_

#include <functional>
#include <ostream>

#include "absl/status/status.h"

namespace kaon::admin_cli {

// Calls `ask`, which prints to `out`, until `out` is closed or `pause` returns false; `pause` waits
// between two calls. If a server does not answer, it is asked again, and `errors` says so once.
// Returns an error that asking again cannot mend.
absl::Status KeepAsking(const std::function<absl::Status()>& ask,
                        const std::function<bool()>& pause, const std::ostream& out,
                        std::ostream& errors);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LIVE_KEEP_ASKING_H_
