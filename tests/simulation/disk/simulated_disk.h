// A directory on a disk whose power can be cut. Writes go to a volatile layer until they are
// synced; a cut keeps as much of it as a real disk might. The seed determines everything that is
// drawn. Owned by a ShardNode, or by a test; one thread.
//
// A cut treats the operations since the last sync as follows:
// - Each 512-byte sector of a file is as it was after a random number of the writes that touched
//   it. The number is drawn for each sector, so writes are lost, torn and reordered, and sectors in
//   between read as zeros.
// - The size of a file is as it was after a random number of operations, or cut at a sector.
// - Created, renamed and removed names survive as a prefix of the operations or as any subset.
#ifndef KAON_TESTS_SIMULATION_DISK_SIMULATED_DISK_H_
#define KAON_TESTS_SIMULATION_DISK_SIMULATED_DISK_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"

namespace kaon::simulation {

inline constexpr uint64_t kSectorBytes = 512;

// Counts of events on one disk since its creation.
struct DiskCounters {
  uint64_t writes = 0;
  uint64_t syncs = 0;
  uint64_t power_cuts = 0;
  // Sectors of writes that a power cut met before their sync.
  uint64_t sectors_lost = 0;
  uint64_t sectors_kept = 0;
  // Names that a power cut removed or brought back.
  uint64_t names_lost = 0;
  // Calls that failed because the disk was full, and because the device failed.
  uint64_t full = 0;
  uint64_t failed = 0;
};

class SimulatedDirectory : public disk::Directory {
 public:
  // `path` is used in messages.
  SimulatedDirectory(std::string path, uint64_t seed);
  ~SimulatedDirectory() override;

  absl::StatusOr<std::unique_ptr<disk::File>> Open(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<disk::File>> Create(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status Sync() override;
  const std::string& path() const override { return path_; }

  // Returns the same directory for a user that must own one. Must not outlive this object.
  std::unique_ptr<disk::Directory> View();

  // Ends the process that used the directory; the operating system keeps its writes. Files that are
  // still open no longer answer.
  void Crash();
  // Crashes and keeps only a random part of the unsynced data.
  void CutPower();
  // Cuts the power of the user whose files have names that contain `part`. Only a random part of
  // the unsynced data of these files survives.
  void CutPowerOf(const std::string& part);

  // Limits the bytes that can still be added to files. A write beyond the limit fails after a part
  // of it.
  void SetFreeBytes(uint64_t bytes) { free_bytes_ = bytes; }
  void SetUnbounded() { free_bytes_ = kUnbounded; }
  uint64_t free_bytes() const { return free_bytes_; }
  bool is_unbounded() const { return free_bytes_ == kUnbounded; }
  // Makes each operation after the next `operations` fail with a device error, until SetHealthy.
  void FailAfter(uint64_t operations) { operations_left_ = operations; }
  void SetHealthy() { operations_left_ = kUnbounded; }
  // Returns the operations left of FailAfter.
  uint64_t operations_left() const { return operations_left_; }

  // Returns a disk that holds what the worst power cut would leave now.
  std::unique_ptr<SimulatedDirectory> DurableCopy() const;
  // Flips a bit of a file's present content; NOT_FOUND.
  absl::Status FlipBit(const std::string& name, uint64_t bit);

  const DiskCounters& counters() const { return counters_; }

 private:
  static constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

  class OpenFile;
  // An unsynced operation on a file's bytes: bytes written at an offset, or a new size.
  struct Pending {
    bool truncate = false;
    uint64_t offset = 0;
    std::string bytes;
    // Size of the file after the operation.
    uint64_t size = 0;
  };
  struct Inode {
    std::string durable;
    std::string written;
    std::vector<Pending> pending;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  // An unsynced operation on names.
  struct Renaming {
    // Empty for a removal.
    std::string to;
    // Empty for a creation.
    std::string from;
    std::shared_ptr<Inode> inode;
  };

  absl::Status CheckName(const std::string& name) const;
  // Counts an operation. Returns OK unless the device fails.
  absl::Status CheckDevice(const std::string& path);
  absl::Status Write(const std::string& path, Inode& inode, uint64_t offset, std::string bytes);
  static void Apply(const Renaming& renaming, Names& names);
  // Applies a power cut to a file, which then has no pending operations.
  void Settle(Inode& inode);
  std::string KeepSector(const Inode& inode, uint64_t start, size_t chosen);
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  const std::string path_;
  std::mt19937_64 random_;
  // Life of the process that may use it; handles of an older life are dead.
  uint64_t life_ = 1;
  Names names_;
  Names durable_names_;
  std::vector<Renaming> renamings_;
  uint64_t free_bytes_ = kUnbounded;
  uint64_t operations_left_ = kUnbounded;
  DiskCounters counters_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_DISK_SIMULATED_DISK_H_
