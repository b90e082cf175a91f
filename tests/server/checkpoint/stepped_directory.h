// A view of a directory that stops its owner before any of its changes, as a process that sleeps
// for long or dies. Owned by a test; one thread.
#ifndef KAON_TESTS_SERVER_CHECKPOINT_STEPPED_DIRECTORY_H_
#define KAON_TESTS_SERVER_CHECKPOINT_STEPPED_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/status_macros.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

class SteppedDirectory : public disk::Directory {
 public:
  // Called before change `number`, from 0 on. If it returns an error, the change fails with it.
  using BeforeChange = std::function<absl::Status(uint64_t number)>;

  // `files` outlives this object.
  SteppedDirectory(disk::Directory& files, BeforeChange before_change)
      : files_(files), before_change_(std::move(before_change)) {}

  absl::StatusOr<std::unique_ptr<disk::File>> Open(const std::string& name) override {
    KAON_ASSIGN_OR_RETURN(std::unique_ptr<disk::File> file, files_.Open(name));
    return Wrapped(std::move(file));
  }
  absl::StatusOr<std::unique_ptr<disk::File>> Create(const std::string& name) override {
    KAON_RETURN_IF_ERROR(BeginChange());
    KAON_ASSIGN_OR_RETURN(std::unique_ptr<disk::File> file, files_.Create(name));
    return Wrapped(std::move(file));
  }
  absl::StatusOr<std::vector<std::string>> List() override { return files_.List(); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    KAON_RETURN_IF_ERROR(BeginChange());
    return files_.Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override {
    KAON_RETURN_IF_ERROR(BeginChange());
    return files_.Remove(name);
  }
  absl::Status Sync() override {
    KAON_RETURN_IF_ERROR(BeginChange());
    return files_.Sync();
  }
  const std::string& path() const override { return files_.path(); }

  // Returns the number of changes so far.
  uint64_t changes() const { return changes_; }

 private:
  class SteppedFile : public disk::File {
   public:
    SteppedFile(SteppedDirectory& owner, std::unique_ptr<disk::File> file)
        : owner_(owner), file_(std::move(file)) {}
    absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override {
      KAON_RETURN_IF_ERROR(owner_.BeginChange());
      return file_->Write(offset, slices);
    }
    absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override {
      return file_->Read(offset, size, to);
    }
    absl::StatusOr<uint64_t> Size() override { return file_->Size(); }
    absl::Status Truncate(uint64_t size) override {
      KAON_RETURN_IF_ERROR(owner_.BeginChange());
      return file_->Truncate(size);
    }
    absl::Status Sync() override {
      KAON_RETURN_IF_ERROR(owner_.BeginChange());
      return file_->Sync();
    }
    const std::string& path() const override { return file_->path(); }

   private:
    SteppedDirectory& owner_;
    const std::unique_ptr<disk::File> file_;
  };

  std::unique_ptr<disk::File> Wrapped(std::unique_ptr<disk::File> file) {
    return std::make_unique<SteppedFile>(*this, std::move(file));
  }
  absl::Status BeginChange() { return before_change_(changes_++); }

  disk::Directory& files_;
  const BeforeChange before_change_;
  uint64_t changes_ = 0;
};

}  // namespace kaon::checkpoint

#endif  // KAON_TESTS_SERVER_CHECKPOINT_STEPPED_DIRECTORY_H_
