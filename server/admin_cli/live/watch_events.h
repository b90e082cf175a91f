// `kaonctl events --watch`: prints a line whenever a server counts an event. One thread.
#ifndef KAON_SERVER_ADMIN_CLI_LIVE_WATCH_EVENTS_H_
#define KAON_SERVER_ADMIN_CLI_LIVE_WATCH_EVENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "kaon/v1/admin.pb.h"

namespace kaon::admin_cli {

// Turns successive answers into lines: the time, the server, the event, how many are new, and the
// count since the server started.
class EventLines {
 public:
  // JSON is one object a line, with the keys time, server, event, new and count.
  explicit EventLines(bool json) : json_(json) {}

  // Returns the lines of what was counted since the last call. The first call returns nothing.
  // A count below the last one is of a server that restarted: all of it is new. Nothing is new of
  // the first answer of another coordinator.
  std::string New(const v1::GetStatusResponse& status);

  // Returns a line for each server that answered before and does not now, or the reverse.
  std::string Changes(const v1::GetStatusResponse& status);

 private:
  using Counts = std::map<std::string, uint64_t>;
  using Events = google::protobuf::RepeatedPtrField<v1::EventCount>;

  // Forgets the counts of a coordinator that another one replaces.
  void NoteCoordinator(const v1::GetStatusResponse& status);
  std::string NewOf(const std::string& time, const std::string& server, const Events& events);

  const bool json_;
  // Newest counts by server. A server is absent before its first answer.
  std::map<std::string, Counts> counts_;
  std::map<std::string, bool> is_away_;
  // Of the coordinator that answered last: when it started, and when it answered, in milliseconds
  // since 1970 UTC.
  int64_t started_ = 0;
  int64_t answered_ = 0;
};

// Reads as KeepAsking says. `errors` also says once that a shard does not answer.
absl::Status WatchEvents(const std::function<absl::StatusOr<v1::GetStatusResponse>()>& read,
                         const std::function<bool()>& pause, bool json, std::ostream& out,
                         std::ostream& errors);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LIVE_WATCH_EVENTS_H_
