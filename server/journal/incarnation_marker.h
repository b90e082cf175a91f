// A file that says that this shard once promised, so that a shard which restarts without its state
// knows that it lost it and never votes again (protocol.md 2.1 rule 5). Owned by the shard's
// composition root; one thread at a time.
#ifndef KAON_SERVER_JOURNAL_INCARNATION_MARKER_H_
#define KAON_SERVER_JOURNAL_INCARNATION_MARKER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kaon::journal {

class IncarnationMarker {
 public:
  // Creates `data_dir` (mode 0700) if it does not exist; its parent must. FAILED_PRECONDITION
  // naming the path and the system's reason, or when the directory is open to others, or naming the
  // first line of a marker of another version.
  static absl::StatusOr<IncarnationMarker> Open(const std::string& data_dir);

  // Whether an earlier process promised.
  bool held_state() const { return held_state_; }

  // Durable when it returns: file and directory are synced. Does nothing the second time.
  // UNAVAILABLE naming the path and the system's reason.
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
