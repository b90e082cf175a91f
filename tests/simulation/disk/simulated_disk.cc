#include "tests/simulation/disk/simulated_disk.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"

namespace kaon::simulation {

namespace {

// Applies an operation to bytes that begin at `start`.
void ApplyTo(bool truncate, uint64_t offset, const std::string& bytes, uint64_t start,
             std::string& to) {
  const uint64_t end = start + to.size();
  if (truncate) {
    if (offset < end) {
      const uint64_t from = std::max(offset, start) - start;
      std::fill(to.begin() + static_cast<int64_t>(from), to.end(), '\0');
    }
    return;
  }
  const uint64_t first = std::max(offset, start);
  const uint64_t last = std::min(offset + bytes.size(), end);
  if (first < last) std::memcpy(&to[first - start], &bytes[first - offset], last - first);
}

class DirectoryView : public disk::Directory {
 public:
  explicit DirectoryView(disk::Directory& directory) : directory_(directory) {}

  absl::StatusOr<std::unique_ptr<disk::File>> Open(const std::string& name) override {
    return directory_.Open(name);
  }
  absl::StatusOr<std::unique_ptr<disk::File>> Create(const std::string& name) override {
    return directory_.Create(name);
  }
  absl::StatusOr<std::vector<std::string>> List() override { return directory_.List(); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return directory_.Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override { return directory_.Remove(name); }
  absl::Status Sync() override { return directory_.Sync(); }
  const std::string& path() const override { return directory_.path(); }

 private:
  disk::Directory& directory_;
};

bool Touches(bool truncate, uint64_t offset, uint64_t size, uint64_t start) {
  if (truncate) return offset < start + kSectorBytes;
  return offset < start + kSectorBytes && offset + size > start;
}

}  // namespace

class SimulatedDirectory::OpenFile : public disk::File {
 public:
  OpenFile(SimulatedDirectory& directory, std::string path, std::shared_ptr<Inode> inode)
      : directory_(directory),
        life_(directory.life_),
        path_(std::move(path)),
        inode_(std::move(inode)) {}

  absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override {
    CheckAlive();
    std::string bytes;
    for (const absl::string_view slice : slices) absl::StrAppend(&bytes, slice);
    return directory_.Write(path_, *inode_, offset, std::move(bytes));
  }

  absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override {
    CheckAlive();
    KAON_RETURN_IF_ERROR(directory_.CheckDevice(path_));
    const std::string& bytes = inode_->written;
    if (offset >= bytes.size()) return 0;
    const size_t count = std::min<uint64_t>(size, bytes.size() - offset);
    if (count > 0) std::memcpy(to, bytes.data() + offset, count);
    return count;
  }

  absl::StatusOr<uint64_t> Size() override {
    CheckAlive();
    return inode_->written.size();
  }

  absl::Status Truncate(uint64_t size) override {
    CheckAlive();
    KAON_RETURN_IF_ERROR(directory_.CheckDevice(path_));
    inode_->written.resize(size);
    inode_->pending.push_back({true, size, "", size});
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    CheckAlive();
    if (const absl::Status status = directory_.CheckDevice(path_); !status.ok()) {
      // The system may have dropped data that it could not write.
      directory_.Settle(*inode_);
      return status;
    }
    ++directory_.counters_.syncs;
    if (inode_->pending.empty()) return absl::OkStatus();
    inode_->pending.clear();
    inode_->durable = inode_->written;
    return absl::OkStatus();
  }

  const std::string& path() const override { return path_; }

 private:
  void CheckAlive() const { CHECK_EQ(life_, directory_.life_) << path_ << ": its process is dead"; }

  SimulatedDirectory& directory_;
  const uint64_t life_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
};

SimulatedDirectory::SimulatedDirectory(std::string path, uint64_t seed)
    : path_(std::move(path)), random_(seed) {}

SimulatedDirectory::~SimulatedDirectory() = default;

std::unique_ptr<disk::Directory> SimulatedDirectory::View() {
  return std::make_unique<DirectoryView>(*this);
}

absl::Status SimulatedDirectory::CheckName(const std::string& name) const {
  const bool one_component = name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  if (!name.empty() && name != "." && name != ".." && one_component) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, ": '", name, "' is not the name of a file"));
}

absl::Status SimulatedDirectory::CheckDevice(const std::string& path) {
  if (operations_left_ > 0) {
    if (operations_left_ != kUnbounded) --operations_left_;
    return absl::OkStatus();
  }
  ++counters_.failed;
  return disk::DeviceError(absl::StrCat(path, ": Input/output error"));
}

absl::StatusOr<std::unique_ptr<disk::File>> SimulatedDirectory::Open(const std::string& name) {
  KAON_RETURN_IF_ERROR(CheckName(name));
  const auto found = names_.find(name);
  const std::string path = absl::StrCat(path_, "/", name);
  if (found == names_.end()) {
    return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
  }
  KAON_RETURN_IF_ERROR(CheckDevice(path));
  return std::make_unique<OpenFile>(*this, path, found->second);
}

absl::StatusOr<std::unique_ptr<disk::File>> SimulatedDirectory::Create(const std::string& name) {
  KAON_RETURN_IF_ERROR(CheckName(name));
  const std::string path = absl::StrCat(path_, "/", name);
  if (names_.count(name) > 0) return absl::AlreadyExistsError(absl::StrCat(path, ": File exists"));
  KAON_RETURN_IF_ERROR(CheckDevice(path));
  if (free_bytes_ == 0) {
    ++counters_.full;
    return absl::ResourceExhaustedError(absl::StrCat(path, ": No space left on device"));
  }
  const auto inode = std::make_shared<Inode>();
  renamings_.push_back({name, "", inode});
  Apply(renamings_.back(), names_);
  return std::make_unique<OpenFile>(*this, path, inode);
}

absl::StatusOr<std::vector<std::string>> SimulatedDirectory::List() {
  KAON_RETURN_IF_ERROR(CheckDevice(path_));
  std::vector<std::string> names;
  for (const auto& [name, inode] : names_) names.push_back(name);
  return names;
}

absl::Status SimulatedDirectory::Rename(const std::string& from, const std::string& to) {
  KAON_RETURN_IF_ERROR(CheckName(from));
  KAON_RETURN_IF_ERROR(CheckName(to));
  const auto found = names_.find(from);
  if (found == names_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, "/", from, ": No such file or directory"));
  }
  KAON_RETURN_IF_ERROR(CheckDevice(path_));
  renamings_.push_back({to, from, found->second});
  Apply(renamings_.back(), names_);
  return absl::OkStatus();
}

absl::Status SimulatedDirectory::Remove(const std::string& name) {
  KAON_RETURN_IF_ERROR(CheckName(name));
  const auto found = names_.find(name);
  if (found == names_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, "/", name, ": No such file or directory"));
  }
  KAON_RETURN_IF_ERROR(CheckDevice(path_));
  renamings_.push_back({"", name, found->second});
  Apply(renamings_.back(), names_);
  return absl::OkStatus();
}

absl::Status SimulatedDirectory::Sync() {
  KAON_RETURN_IF_ERROR(CheckDevice(path_));
  ++counters_.syncs;
  if (renamings_.empty()) return absl::OkStatus();
  renamings_.clear();
  durable_names_ = names_;
  return absl::OkStatus();
}

void SimulatedDirectory::Apply(const Renaming& renaming, Names& names) {
  if (!renaming.from.empty()) {
    const auto found = names.find(renaming.from);
    if (found != names.end() && found->second == renaming.inode) names.erase(found);
  }
  if (!renaming.to.empty()) names[renaming.to] = renaming.inode;
}

absl::Status SimulatedDirectory::Write(const std::string& path, Inode& inode, uint64_t offset,
                                       std::string bytes) {
  KAON_RETURN_IF_ERROR(CheckDevice(path));
  ++counters_.writes;
  const uint64_t size = inode.written.size();
  const uint64_t end = offset + bytes.size();
  const uint64_t added = end > size ? end - size : 0;
  const bool fits = added <= free_bytes_;
  if (!fits) {
    // A short write, of as much as there is room for at most.
    const uint64_t room = offset > size + free_bytes_ ? 0 : size + free_bytes_ - offset;
    bytes.resize(std::min<uint64_t>(bytes.size(), Below(room + 1)));
  }
  if (!bytes.empty()) {
    const uint64_t new_size = std::max(size, offset + bytes.size());
    if (!is_unbounded()) free_bytes_ -= new_size - size;
    inode.written.resize(new_size);
    std::memcpy(&inode.written[offset], bytes.data(), bytes.size());
    inode.pending.push_back({false, offset, std::move(bytes), new_size});
  }
  if (fits) return absl::OkStatus();
  ++counters_.full;
  return absl::ResourceExhaustedError(absl::StrCat(path, ": No space left on device"));
}

void SimulatedDirectory::Crash() { ++life_; }

void SimulatedDirectory::CutPower() {
  ++life_;
  ++counters_.power_cuts;
  // Journaling file systems keep a prefix; POSIX promises no order.
  const bool in_order = Below(2) == 0;
  const size_t kept = Below(renamings_.size() + 1);
  for (size_t i = 0; i < renamings_.size(); ++i) {
    if (in_order ? i < kept : Below(2) == 0) {
      Apply(renamings_[i], durable_names_);
    } else {
      ++counters_.names_lost;
    }
  }
  renamings_.clear();
  names_ = durable_names_;
  for (auto& [name, inode] : names_) Settle(*inode);
}

void SimulatedDirectory::CutPowerOf(const std::string& part) {
  for (auto& [name, inode] : names_) {
    if (name.find(part) != std::string::npos) Settle(*inode);
  }
}

// The content of the sector after the first `chosen` of the operations that touch it.
std::string SimulatedDirectory::KeepSector(const Inode& inode, uint64_t start, size_t chosen) {
  std::string sector(kSectorBytes, '\0');
  ApplyTo(false, 0, inode.durable, start, sector);
  size_t touched = 0;
  for (const Pending& pending : inode.pending) {
    if (!Touches(pending.truncate, pending.offset, pending.bytes.size(), start)) continue;
    if (touched++ == chosen) break;
    ApplyTo(pending.truncate, pending.offset, pending.bytes, start, sector);
  }
  return sector;
}

void SimulatedDirectory::Settle(Inode& inode) {
  if (inode.pending.empty()) return;
  const size_t sized_after = Below(inode.pending.size() + 1);
  uint64_t size = sized_after == 0 ? inode.durable.size() : inode.pending[sized_after - 1].size;
  if (size > inode.durable.size() && Below(4) == 0) {
    size = std::max<uint64_t>(inode.durable.size(), size / kSectorBytes * kSectorBytes);
  }
  // Some cuts keep nearly everything, some nearly nothing.
  const uint64_t luck = Below(5);
  std::string left(size, '\0');
  for (uint64_t start = 0; start < size; start += kSectorBytes) {
    size_t touching = 0;
    for (const Pending& pending : inode.pending) {
      touching += Touches(pending.truncate, pending.offset, pending.bytes.size(), start);
    }
    size_t chosen = touching;
    if (touching > 0 && Below(4) >= luck) chosen = Below(touching);
    counters_.sectors_lost += touching > chosen;
    counters_.sectors_kept += touching > 0 && touching == chosen;
    const std::string sector = KeepSector(inode, start, chosen);
    std::memcpy(&left[start], sector.data(), std::min(kSectorBytes, size - start));
  }
  inode.pending.clear();
  inode.durable = left;
  inode.written = std::move(left);
}

std::unique_ptr<SimulatedDirectory> SimulatedDirectory::DurableCopy() const {
  auto copy = std::make_unique<SimulatedDirectory>(path_, 1);
  for (const auto& [name, inode] : durable_names_) {
    auto copied = std::make_shared<Inode>();
    copied->durable = inode->durable;
    copied->written = inode->durable;
    copy->names_[name] = std::move(copied);
  }
  copy->durable_names_ = copy->names_;
  return copy;
}

absl::Status SimulatedDirectory::FlipBit(const std::string& name, uint64_t bit) {
  const auto found = names_.find(name);
  if (found == names_.end()) return absl::NotFoundError(absl::StrCat(path_, "/", name));
  Inode& inode = *found->second;
  if (bit / 8 >= inode.written.size()) return absl::OutOfRangeError(absl::StrCat("bit ", bit));
  inode.written[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  if (bit / 8 < inode.durable.size()) inode.durable[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  return absl::OkStatus();
}

}  // namespace kaon::simulation
