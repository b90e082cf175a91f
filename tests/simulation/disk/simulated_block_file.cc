#include "tests/simulation/disk/simulated_block_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"

namespace kaon::simulation {

absl::StatusOr<std::unique_ptr<SimulatedBlockFile>> SimulatedBlockFile::Open(
    SimulatedDirectory& directory, const std::string& name, uint64_t size_bytes) {
  absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(name);
  if (absl::IsNotFound(file.status())) file = directory.Create(name);
  KAON_RETURN_IF_ERROR(file.status());
  KAON_ASSIGN_OR_RETURN(const uint64_t held, (*file)->Size());
  if (held < size_bytes) {
    const std::string zeros(size_bytes - held, '\0');
    KAON_RETURN_IF_ERROR((*file)->Write(held, {zeros}));
  }
  KAON_RETURN_IF_ERROR((*file)->Sync());
  KAON_RETURN_IF_ERROR(directory.Sync());
  return std::unique_ptr<SimulatedBlockFile>(new SimulatedBlockFile(*std::move(file), size_bytes));
}

void SimulatedBlockFile::Read(uint64_t offset, absl::Span<std::byte> to, Done done) {
  done(ReadNow(offset, to));
}

void SimulatedBlockFile::Write(uint64_t offset, absl::Span<const std::byte> from, Done done) {
  done(WriteNow(offset, from));
}

absl::Status SimulatedBlockFile::ReadNow(uint64_t offset, absl::Span<std::byte> to) {
  KAON_RETURN_IF_ERROR(disk::CheckBlocks(*this, offset, to));
  KAON_ASSIGN_OR_RETURN(const size_t count,
                        file_->Read(offset, to.size(), reinterpret_cast<char*>(to.data())));
  if (count == to.size()) return absl::OkStatus();
  return disk::DeviceError(absl::StrCat(path(), " ends at byte ", offset + count));
}

absl::Status SimulatedBlockFile::WriteNow(uint64_t offset, absl::Span<const std::byte> from) {
  KAON_RETURN_IF_ERROR(disk::CheckBlocks(*this, offset, from));
  return file_->Write(offset,
                      {absl::string_view(reinterpret_cast<const char*>(from.data()), from.size())});
}

}  // namespace kaon::simulation
