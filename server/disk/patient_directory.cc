#include "server/disk/patient_directory.h"

#include <cstdint>
#include <type_traits>

#include "proto/status_macros.h"

namespace kaon::disk {

namespace {

// Calls `operation` until there is room for it, or `await_room` gives up.
template <typename Operation>
auto Retry(const PatientDirectory::AwaitRoom& await_room, const Operation& operation) {
  const auto status_of = [](const auto& result) -> absl::Status {
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, absl::Status>) {
      return result;
    } else {
      return result.status();
    }
  };
  auto result = operation();
  while (absl::IsResourceExhausted(status_of(result)) && await_room(status_of(result))) {
    result = operation();
  }
  return result;
}

class PatientFile : public File {
 public:
  PatientFile(std::unique_ptr<File> file, const PatientDirectory::AwaitRoom& await_room)
      : file_(std::move(file)), await_room_(await_room) {}

  absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override {
    return Retry(await_room_, [&] { return file_->Write(offset, slices); });
  }
  absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override {
    return file_->Read(offset, size, to);
  }
  absl::StatusOr<uint64_t> Size() override { return file_->Size(); }
  absl::Status Truncate(uint64_t size) override {
    return Retry(await_room_, [&] { return file_->Truncate(size); });
  }
  absl::Status Sync() override { return file_->Sync(); }
  const std::string& path() const override { return file_->path(); }

 private:
  const std::unique_ptr<File> file_;
  const PatientDirectory::AwaitRoom& await_room_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<File>> PatientDirectory::Open(const std::string& name) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<File> file, directory_->Open(name));
  return std::unique_ptr<File>(std::make_unique<PatientFile>(std::move(file), await_room_));
}

absl::StatusOr<std::unique_ptr<File>> PatientDirectory::Create(const std::string& name) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                        Retry(await_room_, [&] { return directory_->Create(name); }));
  return std::unique_ptr<File>(std::make_unique<PatientFile>(std::move(file), await_room_));
}

absl::Status PatientDirectory::Rename(const std::string& from, const std::string& to) {
  return Retry(await_room_, [&] { return directory_->Rename(from, to); });
}

absl::Status PatientDirectory::Remove(const std::string& name) {
  return Retry(await_room_, [&] { return directory_->Remove(name); });
}

}  // namespace kaon::disk
