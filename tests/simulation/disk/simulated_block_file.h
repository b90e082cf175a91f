// A tier's file on the simulated disk, whose power can be cut: an unsynced write survives in part,
// sector by sector. Operations are done before their call returns. The test owns it; one thread.
#ifndef KAON_TESTS_SIMULATION_DISK_SIMULATED_BLOCK_FILE_H_
#define KAON_TESTS_SIMULATION_DISK_SIMULATED_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/disk/block_file.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::simulation {

class SimulatedBlockFile final : public disk::BlockFile {
 public:
  // Opens file `name`, or creates it with zeros, and makes it durable. `directory` outlives it.
  static absl::StatusOr<std::unique_ptr<SimulatedBlockFile>> Open(SimulatedDirectory& directory,
                                                                  const std::string& name,
                                                                  uint64_t size_bytes);

  void Read(uint64_t offset, absl::Span<std::byte> to, Done done) override;
  void Write(uint64_t offset, absl::Span<const std::byte> from, Done done) override;
  absl::Status Sync() override { return file_->Sync(); }
  uint64_t size_bytes() const override { return size_bytes_; }
  const std::string& path() const override { return file_->path(); }

 private:
  SimulatedBlockFile(std::unique_ptr<disk::File> file, uint64_t size_bytes)
      : file_(std::move(file)), size_bytes_(size_bytes) {}

  absl::Status ReadNow(uint64_t offset, absl::Span<std::byte> to);
  absl::Status WriteNow(uint64_t offset, absl::Span<const std::byte> from);

  const std::unique_ptr<disk::File> file_;
  const uint64_t size_bytes_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_DISK_SIMULATED_BLOCK_FILE_H_
