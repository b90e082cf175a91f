// The file `durable` of a journal: names the newest frame that is known to be on disk. It is
// written after each sync, but not synced itself, so it may lag behind and never runs ahead. If the
// frame that it names is missing, the journal has lost an entry on which a vote depended. Not
// thread-safe. JournalLog owns it.
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

// Identifies one frame.
struct DurableMark {
  uint64_t sequence = 0;
  uint32_t header_crc = 0;
};

class DurableMarkFile {
 public:
  // Opens the file of `directory`, and creates it if missing. `directory` must outlive the result;
  // `directory_hash` is the hash of its id. Returns the errors of the directory.
  static absl::StatusOr<DurableMarkFile> Open(disk::Directory& directory, uint64_t directory_hash);

  // Reads the mark. Returns nullopt if there is no file, or if a crash left it without a written
  // sector. DATA_LOSS names a file that is damaged or of another directory.
  static absl::StatusOr<std::optional<DurableMark>> Read(disk::Directory& directory,
                                                         uint64_t directory_hash);

  // Writes one sector, whole or not at all.
  absl::Status Write(const DurableMark& mark);

 private:
  DurableMarkFile(std::unique_ptr<disk::File> file, uint64_t directory_hash);

  std::unique_ptr<disk::File> file_;
  uint64_t directory_hash_ = 0;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_DURABLE_MARK_H_
