#include "server/admin_cli/live/keep_asking.h"

namespace kaon::admin_cli {

namespace {

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

absl::Status KeepAsking(const std::function<absl::Status()>& ask,
                        const std::function<bool()>& pause, const std::ostream& out,
                        std::ostream& errors) {
  bool is_away = false;
  do {
    const absl::Status asked = ask();
    if (!asked.ok() && !MayPass(asked)) return asked;
    if (!asked.ok() && !is_away) {
      errors << "kaonctl: " << asked << "; asking again\n" << std::flush;
    }
    is_away = !asked.ok();
  } while (out.good() && pause());
  return absl::OkStatus();
}

}  // namespace kaon::admin_cli
