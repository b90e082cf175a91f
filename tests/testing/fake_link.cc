#include "tests/testing/fake_link.h"

#include <glog/logging.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/reduce/digest.h"

namespace kaon::kernels {

class FakeFabric::Link : public DeviceLink {
 public:
  Link(std::shared_ptr<FakeFabric> fabric, int device)
      : fabric_(std::move(fabric)), device_(device) {}

  std::string name() const override { return absl::StrCat("a fake of device ", device_); }
  int device() const override { return device_; }

  std::string memory_tier() const override { return absl::StrCat("fabric:", device_); }
  absl::StatusOr<Region> Allocate(uint64_t bytes) override {
    MutexLock lock(fabric_->mu_);
    if (!fabric_->faults_.memory.ok()) return fabric_->faults_.memory;
    ++fabric_->counts_.allocations;
    return Region(Space::kDevice, static_cast<std::byte*>(std::malloc(bytes)), bytes);
  }
  void Free(Region memory) override {
    MutexLock lock(fabric_->mu_);
    fabric_->CheckUnusedLocked(memory);
    --fabric_->counts_.allocations;
    std::memset(memory.data(), 0xee, memory.size());
    std::free(memory.data());
  }
  bool IsReady(void* event) override {
    const auto& ready = static_cast<const FakeEvent*>(event)->ready;
    return ready == nullptr || ready();
  }
  void WaitFor(void* event) override { static_cast<const FakeEvent*>(event)->work(); }
  void CopyIn(absl::Span<const std::byte> from, Region to) override {
    CHECK_EQ(from.size(), to.size());
    CHECK(to.space() == Space::kDevice);
    std::memcpy(to.data(), from.data(), from.size());
    CountHostCopy();
  }
  void Copy(ConstRegion from, Region to) override {
    CHECK_EQ(from.size(), to.size());
    CHECK(from.space() == Space::kDevice && to.space() == Space::kDevice);
    std::memcpy(to.data(), from.data(), from.size());
  }
  void CopyOut(ConstRegion from, absl::Span<std::byte> to) override {
    CHECK_EQ(from.size(), to.size());
    CHECK(from.space() == Space::kDevice);
    std::memcpy(to.data(), from.data(), from.size());
    CountHostCopy();
  }
  uint64_t Digest(uint32_t parameter_id, ConstRegion bytes) override {
    return TensorDigester(parameter_id, kTransferSlot)
        .OfBytes({bytes.data(), static_cast<size_t>(bytes.size())}, 0);
  }

  absl::StatusOr<UniqueId> NewId() override {
    UniqueId id = {};
    MutexLock lock(fabric_->mu_);
    ++fabric_->counts_.ids;
    const uint64_t number = fabric_->next_++;
    std::memcpy(id.data(), &number, sizeof(number));
    return id;
  }
  absl::StatusOr<CommId> Init(const UniqueId& id, int rank) override {
    return fabric_->Init(id, rank);
  }
  CommState Poll(CommId comm) override { return fabric_->Poll(comm); }
  absl::StatusOr<TransferId> Send(CommId comm, ConstRegion from) override {
    CHECK(from.space() == Space::kDevice);
    Transfer transfer;
    transfer.from = from.data();
    transfer.size = from.size();
    return fabric_->Add(comm, true, transfer);
  }
  absl::StatusOr<TransferId> Receive(CommId comm, Region to) override {
    CHECK(to.space() == Space::kDevice);
    Transfer transfer;
    transfer.to = to.data();
    transfer.size = to.size();
    return fabric_->Add(comm, false, transfer);
  }
  bool IsDone(CommId comm, TransferId transfer) override { return fabric_->IsDone(comm, transfer); }
  void Revoke(CommId comm) override { fabric_->Revoke(comm); }
  absl::Status Abort(absl::Span<const CommId> comms) override { return fabric_->Abort(comms); }

 private:
  void CountHostCopy() {
    MutexLock lock(fabric_->mu_);
    ++fabric_->counts_.host_copies;
  }

  const std::shared_ptr<FakeFabric> fabric_;
  const int device_;
};

FakeFabric::~FakeFabric() {
  MutexLock lock(mu_);
  CHECK(ends_.empty()) << ends_.size() << " communicators are left";
  CHECK_EQ(counts_.allocations, 0u) << "memory of the device is left";
}

std::shared_ptr<DeviceLink> FakeFabric::NewLink(int device) {
  return std::make_shared<Link>(shared_from_this(), device);
}

void FakeFabric::SetFaults(const Faults& faults) {
  MutexLock lock(mu_);
  faults_ = faults;
}

void FakeFabric::ReleaseAborts() {
  MutexLock lock(mu_);
  faults_.abort_hangs = false;
  changed_.NotifyAll();
}

FakeFabric::Counts FakeFabric::counts() const {
  MutexLock lock(mu_);
  return counts_;
}

void FakeFabric::AwaitAbort() {
  MutexLock lock(mu_);
  while (aborts_begun_ == 0) changed_.Wait(mu_);
}

absl::StatusOr<CommId> FakeFabric::Init(const UniqueId& id, int rank) {
  MutexLock lock(mu_);
  if (!faults_.init.ok()) return faults_.init;
  ++counts_.inits;
  const CommId comm = next_++;
  End& end = ends_[comm];
  end.id = id;
  end.rank = rank;
  end.polls = faults_.polls;
  return comm;
}

FakeFabric::End* FakeFabric::OtherLocked(const End& end) {
  for (auto& [comm, other] : ends_) {
    if (other.id == end.id && other.rank != end.rank) return &other;
  }
  return nullptr;
}

CommState FakeFabric::Poll(CommId comm) {
  MutexLock lock(mu_);
  End& end = ends_.at(comm);
  if (!end.failure.empty()) return {CommState::Kind::kFailed, end.failure};
  if (!end.ready && OtherLocked(end) == nullptr) return {CommState::Kind::kInProgress, ""};
  if (end.polls > 0) {
    --end.polls;
    return {CommState::Kind::kInProgress, ""};
  }
  end.ready = true;
  return {CommState::Kind::kReady, ""};
}

absl::StatusOr<TransferId> FakeFabric::Add(CommId comm, bool sends, Transfer transfer) {
  MutexLock lock(mu_);
  End& end = ends_.at(comm);
  CHECK(end.ready && !end.revoked) << "a transfer of a communicator that is not ready";
  if (!end.failure.empty()) return absl::UnavailableError(end.failure);
  transfer.id = next_++;
  ++counts_.queued;
  if (sends && faults_.eager && !faults_.never_done) {
    transfer.eager =
        std::make_shared<std::vector<std::byte>>(transfer.from, transfer.from + transfer.size);
    transfer.from = transfer.eager->data();
  }
  (sends ? end.sends : end.receives).push_back(transfer);
  if (End* const other = OtherLocked(end)) {
    sends ? MatchLocked(end, *other) : MatchLocked(*other, end);
  }
  return transfer.id;
}

void FakeFabric::MatchLocked(End& sender, End& receiver) {
  if (faults_.never_done) return;
  while (true) {
    Transfer* sent = nullptr;
    Transfer* received = nullptr;
    for (Transfer& one : sender.sends) {
      if (!one.arrived && sent == nullptr) sent = &one;
    }
    for (Transfer& one : receiver.receives) {
      if (!one.arrived && received == nullptr) received = &one;
    }
    if (sent == nullptr || received == nullptr) return;
    ++counts_.transfers;
    if (faults_.fail_at > 0 && counts_.transfers >= faults_.fail_at) {
      FailLocked(sender, "the fabric lost the link");
      return FailLocked(receiver, "the fabric lost the link");
    }
    if (sent->size != received->size) return FailLocked(receiver, "the sizes differ");
    std::memcpy(received->to, sent->from, sent->size);
    if (counts_.transfers == faults_.corrupt_at) received->to[sent->size / 2] ^= std::byte{4};
    counts_.bytes += sent->size;
    for (Transfer* const one : {sent, received}) {
      one->arrived = true;
      one->delay = faults_.delay;
    }
    // It stayed for its receive only.
    if (sent->told) sender.sends.pop_front();
  }
}

bool FakeFabric::IsDone(CommId comm, TransferId transfer) {
  MutexLock lock(mu_);
  End& end = ends_.at(comm);
  for (std::deque<Transfer>* const queue : {&end.sends, &end.receives}) {
    for (size_t i = 0; i < queue->size(); ++i) {
      Transfer& one = (*queue)[i];
      if (one.id != transfer) continue;
      if (one.eager != nullptr && !one.arrived) {
        one.told = true;
        return true;
      }
      // With `reorder`, the first of several stays under way until it is alone.
      if (faults_.reorder && i == 0 && queue->size() > 1 && one.delay++ < 3) return false;
      if (!one.arrived || (!faults_.reorder && one.delay-- > 0)) return false;
      queue->erase(queue->begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
  }
  LOG(FATAL) << "transfer " << transfer << " was done before";
}

void FakeFabric::CheckUnusedLocked(ConstRegion memory) const {
  const auto is_inside = [&memory](const std::byte* bytes) {
    return bytes >= memory.data() && bytes < memory.data() + memory.size();
  };
  for (const auto& [comm, end] : ends_) {
    for (const std::deque<Transfer>* const queue : {&end.sends, &end.receives}) {
      for (const Transfer& one : *queue) {
        CHECK(!is_inside(one.from) && !is_inside(one.to)) << "freed during a transfer";
      }
    }
  }
}

void FakeFabric::FailLocked(End& end, const std::string& why) {
  if (end.failure.empty()) end.failure = why;
}

void FakeFabric::Revoke(CommId comm) {
  MutexLock lock(mu_);
  ++counts_.revokes;
  End& end = ends_.at(comm);
  end.revoked = true;
  end.polls = faults_.polls;
  if (End* const other = OtherLocked(end); other != nullptr && !faults_.never_done) {
    FailLocked(*other, "the other rank revoked the communicator");
  }
}

absl::Status FakeFabric::Abort(absl::Span<const CommId> comms) {
  MutexLock lock(mu_);
  ++aborts_begun_;
  changed_.NotifyAll();
  while (faults_.abort_hangs) changed_.Wait(mu_);
  ++counts_.abort_groups;
  for (const CommId comm : comms) {
    ++counts_.aborted;
    if (End* const other = OtherLocked(ends_.at(comm)); other != nullptr && !faults_.never_done) {
      FailLocked(*other, "the connection was closed by the other rank");
    }
    ends_.erase(comm);
  }
  return faults_.abort;
}

void FakeFabric::KillRank(int rank) {
  MutexLock lock(mu_);
  for (auto& [comm, end] : ends_) {
    FailLocked(end, end.rank == rank ? "killed" : "the connection was closed by the other rank");
  }
}

}  // namespace kaon::kernels
