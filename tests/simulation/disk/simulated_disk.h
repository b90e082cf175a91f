// A directory on a disk whose power can be cut: what was written lies in a volatile layer until it
// is synced; a cut keeps of the rest what a real disk might have kept. Everything drawn follows
// from the seed. Owned by a ShardNode, or by a test; one thread.
//
// What a cut keeps of the operations since the last sync: of a file's bytes, each 512-byte sector
// as it was after some number of the writes that touched it, drawn for each sector on its own (so
// that writes are lost, torn and reordered, and sectors in between read as zeros); its size as it
// was after some number of operations, or cut at a sector; of names created, renamed and removed, a
// prefix or any subset.
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

// What happened on one disk since it was made.
struct DiskCounters {
  uint64_t writes = 0;
  uint64_t syncs = 0;
  uint64_t power_cuts = 0;
  // Of writes that a power cut met before their sync, in sectors.
  uint64_t sectors_lost = 0;
  uint64_t sectors_kept = 0;
  // Names that a power cut took or brought back.
  uint64_t names_lost = 0;
  // Calls refused because the disk was full, and because the device failed.
  uint64_t full = 0;
  uint64_t failed = 0;
};

class SimulatedDirectory : public disk::Directory {
 public:
  // `path` is for messages.
  SimulatedDirectory(std::string path, uint64_t seed);
  ~SimulatedDirectory() override;

  absl::StatusOr<std::unique_ptr<disk::File>> Open(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<disk::File>> Create(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status Sync() override;
  const std::string& path() const override { return path_; }

  // The same directory, for who wants to own one; does not outlive this object.
  std::unique_ptr<disk::Directory> View();

  // The process that used the directory died; the operating system keeps what was written. Files
  // that are still open answer nothing any more.
  void Crash();
  // As Crash, and of what was not synced only a random part is left.
  void CutPower();
  // The power of one who uses the directory is cut, who wrote the files whose names contain `part`:
  // of what of them was not synced only a random part is left.
  void CutPowerOf(const std::string& part);

  // So many bytes can still be added to files; what does not fit is refused, some of it written.
  void SetFreeBytes(uint64_t bytes) { free_bytes_ = bytes; }
  void SetUnbounded() { free_bytes_ = kUnbounded; }
  uint64_t free_bytes() const { return free_bytes_; }
  bool is_unbounded() const { return free_bytes_ == kUnbounded; }
  // After so many more operations each is refused as the device's error, until told otherwise.
  void FailAfter(uint64_t operations) { operations_left_ = operations; }
  void SetHealthy() { operations_left_ = kUnbounded; }
  // As FailAfter was told, less those since.
  uint64_t operations_left() const { return operations_left_; }

  // A disk that holds what the least lucky power cut would leave now.
  std::unique_ptr<SimulatedDirectory> DurableCopy() const;
  // Of what a file holds now; NOT_FOUND.
  absl::Status FlipBit(const std::string& name, uint64_t bit);

  const DiskCounters& counters() const { return counters_; }

 private:
  static constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

  class OpenFile;
  // An operation on a file's bytes that is not synced: bytes written at an offset, or a new size.
  struct Pending {
    bool truncate = false;
    uint64_t offset = 0;
    std::string bytes;
    // Of the file, after the operation.
    uint64_t size = 0;
  };
  struct Inode {
    std::string durable;
    std::string written;
    std::vector<Pending> pending;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  // An operation on names that is not synced.
  struct Renaming {
    // Empty for a removal.
    std::string to;
    // Empty for a creation.
    std::string from;
    std::shared_ptr<Inode> inode;
  };

  absl::Status CheckName(const std::string& name) const;
  // Counts an operation; OK unless the device fails.
  absl::Status CheckDevice(const std::string& path);
  absl::Status Write(const std::string& path, Inode& inode, uint64_t offset, std::string bytes);
  static void Apply(const Renaming& renaming, Names& names);
  // What is left of a file, whose operations are pending no more.
  void Settle(Inode& inode);
  std::string KeepSector(const Inode& inode, uint64_t start, size_t chosen);
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  const std::string path_;
  std::mt19937_64 random_;
  // Of the process that may use it; handles of an older one are dead.
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
