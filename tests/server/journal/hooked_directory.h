// A directory that calls a hook before every operation. Tests observe the order of operations, make
// one fail, or delay it. Owned by a test; used by one thread at a time.
#ifndef KAON_TESTS_SERVER_JOURNAL_HOOKED_DIRECTORY_H_
#define KAON_TESTS_SERVER_JOURNAL_HOOKED_DIRECTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "server/disk/disk.h"

namespace kaon::journal {

class HookedDirectory : public disk::Directory {
 public:
  // `operation` is "write", "truncate", "sync", "create", "rename", "remove" or, with an empty
  // name, "sync directory". If the hook returns an error, the operation fails with it; half of a
  // write is done.
  using Hook = std::function<absl::Status(absl::string_view operation, const std::string& name)>;

  explicit HookedDirectory(disk::Directory& below) : below_(below) {}

  void set_hook(Hook hook) { hook_ = std::move(hook); }

  absl::StatusOr<std::unique_ptr<disk::File>> Open(const std::string& name) override {
    return Wrap(name, below_.Open(name));
  }
  absl::StatusOr<std::unique_ptr<disk::File>> Create(const std::string& name) override {
    KAON_RETURN_IF_ERROR(Ask("create", name));
    return Wrap(name, below_.Create(name));
  }
  absl::StatusOr<std::vector<std::string>> List() override { return below_.List(); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    KAON_RETURN_IF_ERROR(Ask("rename", from));
    return below_.Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override {
    KAON_RETURN_IF_ERROR(Ask("remove", name));
    return below_.Remove(name);
  }
  absl::Status Sync() override {
    KAON_RETURN_IF_ERROR(Ask("sync directory", ""));
    return below_.Sync();
  }
  const std::string& path() const override { return below_.path(); }

 private:
  class HookedFile : public disk::File {
   public:
    HookedFile(HookedDirectory& directory, std::string name, std::unique_ptr<disk::File> below)
        : directory_(directory), name_(std::move(name)), below_(std::move(below)) {}

    absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override {
      const absl::Status status = directory_.Ask("write", name_);
      if (status.ok()) return below_->Write(offset, slices);
      std::string half;
      for (const absl::string_view slice : slices) half.append(slice.data(), slice.size());
      half.resize(half.size() / 2);
      KAON_RETURN_IF_ERROR(below_->Write(offset, {half}));
      return status;
    }
    absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override {
      return below_->Read(offset, size, to);
    }
    absl::StatusOr<uint64_t> Size() override { return below_->Size(); }
    absl::Status Truncate(uint64_t size) override {
      KAON_RETURN_IF_ERROR(directory_.Ask("truncate", name_));
      return below_->Truncate(size);
    }
    absl::Status Sync() override {
      KAON_RETURN_IF_ERROR(directory_.Ask("sync", name_));
      return below_->Sync();
    }
    const std::string& path() const override { return below_->path(); }

   private:
    HookedDirectory& directory_;
    const std::string name_;
    const std::unique_ptr<disk::File> below_;
  };

  absl::Status Ask(absl::string_view operation, const std::string& name) {
    return hook_ ? hook_(operation, name) : absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<disk::File>> Wrap(
      const std::string& name, absl::StatusOr<std::unique_ptr<disk::File>> file) {
    if (!file.ok()) return file.status();
    return std::make_unique<HookedFile>(*this, name, std::move(*file));
  }

  disk::Directory& below_;
  Hook hook_;
};

}  // namespace kaon::journal

#endif  // KAON_TESTS_SERVER_JOURNAL_HOOKED_DIRECTORY_H_
