// A file that says that this shard once promised. A shard that restarts without its state learns
// from it that it lost its state, and never votes again (protocol.md 2.1 rule 5). Not thread-safe.
// The shard's composition root owns it.
#ifndef KAON_SERVER_JOURNAL_INCARNATION_MARKER_H_
#define KAON_SERVER_JOURNAL_INCARNATION_MARKER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kaon::journal {

class IncarnationMarker {
 public:
  // Creates `data_dir` (mode 0700) if it does not exist; its parent must exist.
  //   FAILED_PRECONDITION  an error of the system, or the directory is open to other users (names
  //                        the path); or a marker of another version (names its first line)
  static absl::StatusOr<IncarnationMarker> Open(const std::string& data_dir);

  // Returns whether an earlier process promised.
  bool held_state() const { return held_state_; }

  // Writes the marker durably: syncs file and directory. The second call does nothing. UNAVAILABLE
  // names the path and the system's reason.
  absl::Status Write();

  const std::string& path() const { return path_; }

 private:
  IncarnationMarker(std::string data_dir, bool held_state);

  std::string data_dir_;
  std::string path_;
  bool held_state_ = false;
  bool written_ = false;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_INCARNATION_MARKER_H_
