// The file `durable` of a journal: names the newest frame that is known to be on disk. It is
// written after each sync and not synced itself, so it may lag behind and never runs ahead; what it
// names must be found, else the journal has lost what a vote was given on. Owned by JournalLog; one
// thread.
#ifndef KAON_SERVER_JOURNAL_DURABLE_MARK_H_
#define KAON_SERVER_JOURNAL_DURABLE_MARK_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"

namespace kaon::journal {

inline constexpr char kDurableMarkFile[] = "durable";

// One frame.
struct DurableMark {
  uint64_t sequence = 0;
  uint32_t header_crc = 0;
};

class DurableMarkFile {
 public:
  // Creates it if it is not there. `directory` outlives the result, which is of the directory with
  // the id hash `directory_hash`.
  static absl::StatusOr<DurableMarkFile> Open(disk::Directory& directory, uint64_t directory_hash);

  // Absent in a directory without the file, and when a crash left it without a sector written.
  // DATA_LOSS naming the file when it is damaged or of another directory.
  static absl::StatusOr<std::optional<DurableMark>> Read(disk::Directory& directory,
                                                         uint64_t directory_hash);

  // One sector, written whole or not at all.
  absl::Status Write(const DurableMark& mark);

 private:
  DurableMarkFile(std::unique_ptr<disk::File> file, uint64_t directory_hash);

  std::unique_ptr<disk::File> file_;
  uint64_t directory_hash_ = 0;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_DURABLE_MARK_H_
