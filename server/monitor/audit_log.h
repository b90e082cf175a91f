// Records what admins did and which calls were refused, with the identity of each caller. It writes
// one JSON object a line, to files of bounded size, on a thread of its own. Thread-safe. Owned by
// the server.
#ifndef KAON_SERVER_MONITOR_AUDIT_LOG_H_
#define KAON_SERVER_MONITOR_AUDIT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "proto/descriptor.h"

namespace kaon::monitor {

class AuditLog {
 public:
  struct Limits {
    // A larger file becomes PATH.1, that one PATH.2, and so on; the last one is removed.
    uint64_t file_bytes = uint64_t{16} << 20;
    int old_files = 3;
    // Refusals can be caused at any rate. More than so many within a second are only counted.
    int refusals_per_second = 10;
    // Lines that wait for a slow disk. Further ones are only counted.
    size_t waiting = 1024;
  };

  // Appends to `path`, which only this user can read. FAILED_PRECONDITION names the path and why it
  // cannot be written.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path,
                                                        const Limits& limits);
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path) {
    return Open(path, Limits());
  }

  // Writes the lines that wait.
  ~AuditLog();

  // Records an admin's request and its result. It does not wait for the disk.
  void Act(absl::string_view peer, absl::string_view act, const absl::Status& result,
           absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Records a call that `peer` may not make.
  void Refusal(absl::string_view peer, const absl::Status& refusal, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  AuditLog(std::string path, const Limits& limits) : path_(std::move(path)), limits_(limits) {}
  void Add(absl::string_view kind, absl::string_view peer, absl::string_view what,
           const absl::Status& result, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  // These run on the thread, or before it starts. A full disk loses lines, never a call; the log
  // says so.
  // Opens the file at path_. An error leaves the earlier one open.
  absl::Status OpenFile();
  // Gives the file the name of an old one and opens another. An error loses no line.
  absl::Status Rotate();
  // Opens another file if a program moved this one, or it has no room for so many bytes.
  absl::Status MakeRoom(size_t bytes);
  absl::Status Write(const std::string& line);

  const std::string path_;
  const Limits limits_;
  proto::Descriptor file_;
  uint64_t file_bytes_ = 0;
  uint64_t file_inode_ = 0;
  // Lines go to a file that should have been left.
  bool overdue_ = false;

  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mu_);
  // Refusals of the second that began then.
  absl::Time second_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int refusals_ ABSL_GUARDED_BY(mu_) = 0;
  // Acts and refusals since the last line that got none.
  uint64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_AUDIT_LOG_H_
