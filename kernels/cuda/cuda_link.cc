#include "kernels/cuda/cuda_link.h"

#include <glog/logging.h>

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/elements/digest.h"
#include "kernels/cuda/staged_copy.h"

namespace kaon::kernels::cuda {

absl::StatusOr<std::unique_ptr<CudaLink>> CudaLink::Create(std::unique_ptr<Device> device,
                                                           int ordinal,
                                                           std::unique_ptr<NcclApi> api,
                                                           std::string network) {
  std::unique_ptr<CudaLink> link(
      new CudaLink(std::move(device), ordinal, std::move(api), std::move(network)));
  absl::StatusOr<std::unique_ptr<LanePool>> lanes = LanePool::Create(*link->device_, 1);
  if (!lanes.ok()) return lanes.status();
  link->lanes_ = *std::move(lanes);
  return link;
}

CudaLink::CudaLink(std::unique_ptr<Device> device, int ordinal, std::unique_ptr<NcclApi> api,
                   std::string network)
    : device_(std::move(device)),
      ordinal_(ordinal),
      api_(std::move(api)),
      network_(std::move(network)) {}

std::string CudaLink::name() const {
  return absl::StrCat("NCCL ", api_->version(), " on ", device_->properties().platform, ":",
                      ordinal_, " over ", network_);
}

absl::StatusOr<Region> CudaLink::Allocate(uint64_t bytes) {
  const absl::StatusOr<void*> memory = device_->Allocate(bytes);
  if (!memory.ok()) return memory.status();
  return Region(Space::kDevice, static_cast<std::byte*>(*memory), bytes);
}

void CudaLink::Free(Region memory) { device_->Free(memory.data()); }

bool CudaLink::IsReady(void* event) { return lanes_->Borrow()->stream->IsNativeDone(event); }

void CudaLink::WaitFor(void* event) { lanes_->Borrow()->stream->WaitForNative(event); }

void CudaLink::CopyIn(absl::Span<const std::byte> from, Region to) {
  CHECK_EQ(from.size(), to.size());
  CopyInThrough(*lanes_->Borrow(), from.data(), from.size(), to.data());
}

void CudaLink::Copy(ConstRegion from, Region to) {
  CHECK_EQ(from.size(), to.size());
  const LanePool::Borrowed lane = lanes_->Borrow();
  lane->stream->Copy(from.data(), to.data(), from.size());
  lane->stream->Record(*lane->end);
  lane->end->Await();
}

void CudaLink::CopyOut(ConstRegion from, absl::Span<std::byte> to) {
  CHECK_EQ(from.size(), to.size());
  CopyOutThrough(*lanes_->Borrow(), from.data(), from.size(), to.data());
}

uint64_t CudaLink::Digest(uint32_t parameter_id, ConstRegion bytes) {
  const LanePool::Borrowed lane = lanes_->Borrow();
  lane->stream->SetZero(lane->result.data(), sizeof(uint64_t));
  AddDigest(*lane->stream, parameter_id, kTransferSlot, bytes.data(), bytes.size(),
            lane->results<uint64_t>());
  lane->stream->CopyOut(lane->result.data(), lane->result_out.data(), sizeof(uint64_t));
  lane->stream->Record(*lane->end);
  lane->end->Await();
  return *lane->results_out<uint64_t>();
}

absl::StatusOr<CommId> CudaLink::Init(const UniqueId& id, int rank) {
  Comm comm;
  comm.peer = 1 - rank;
  comm.stream = device_->NewStream();
  // NCCL joins with the device that is current on this thread.
  static_cast<void>(comm.stream->native());
  const absl::StatusOr<nccl::Comm> handle = api_->Init(id, 2, rank, NcclApi::CommOptions());
  if (!handle.ok()) return handle.status();
  comm.handle = *handle;
  MutexLock lock(mu_);
  const CommId number = next_++;
  comms_.emplace(number, std::move(comm));
  return number;
}

CommState CudaLink::Poll(CommId comm) {
  MutexLock lock(mu_);
  return api_->Poll(comms_.at(comm).handle);
}

absl::StatusOr<TransferId> CudaLink::Send(CommId comm, ConstRegion from) {
  return Add(comm, Region(from.space(), const_cast<std::byte*>(from.data()), from.size()), true);
}

absl::StatusOr<TransferId> CudaLink::Receive(CommId comm, Region to) {
  return Add(comm, to, false);
}

absl::StatusOr<TransferId> CudaLink::Add(CommId comm, Region memory, bool sends) {
  CHECK(memory.space() == Space::kDevice) << "NCCL transfers memory of the device";
  MutexLock lock(mu_);
  Comm& found = comms_.at(comm);
  Transfer transfer;
  transfer.id = next_++;
  transfer.memory = memory;
  transfer.sends = sends;
  const TransferId id = transfer.id;
  found.transfers.push_back(std::move(transfer));
  if (absl::Status status = PumpLocked(found); !status.ok()) {
    return absl::UnavailableError(status.message());
  }
  return id;
}

absl::Status CudaLink::PumpLocked(Comm& comm) {
  for (Transfer& transfer : comm.transfers) {
    if (transfer.done != nullptr) continue;
    if (!transfer.given) {
      void* const stream = comm.stream->native();
      const absl::Status status =
          transfer.sends ? api_->Send(comm.handle, transfer.memory, comm.peer, stream)
                         : api_->Receive(comm.handle, transfer.memory, comm.peer, stream);
      if (!status.ok()) return status;
      transfer.given = true;
    }
    const CommState state = api_->Poll(comm.handle);
    // LinkSession sees a failure by itself.
    if (state.kind != CommState::Kind::kReady) return absl::OkStatus();
    transfer.done = device_->NewEvent();
    comm.stream->Record(*transfer.done);
  }
  return absl::OkStatus();
}

bool CudaLink::IsDone(CommId comm, TransferId transfer) {
  MutexLock lock(mu_);
  Comm& found = comms_.at(comm);
  // The next Poll tells a failure.
  if (!PumpLocked(found).ok()) return false;
  for (auto one = found.transfers.begin(); one != found.transfers.end(); ++one) {
    if (one->id != transfer) continue;
    if (one->done == nullptr || !one->done->IsDone()) return false;
    found.transfers.erase(one);
    return true;
  }
  LOG(FATAL) << "transfer " << transfer << " was done before";
}

void CudaLink::Revoke(CommId comm) {
  MutexLock lock(mu_);
  const absl::Status status = api_->Revoke(comms_.at(comm).handle);
  LOG_IF(WARNING, !status.ok()) << status;
}

absl::Status CudaLink::Abort(absl::Span<const CommId> comms) {
  std::vector<Comm> aborted;
  {
    MutexLock lock(mu_);
    for (const CommId comm : comms) aborted.push_back(std::move(comms_.extract(comm).mapped()));
  }
  // Without the lock: an abort may block, and other communicators go on.
  std::vector<nccl::Comm> handles;
  for (const Comm& comm : aborted) handles.push_back(comm.handle);
  absl::Status status = api_->Abort(handles);
  // NCCL may still use their streams, whose destructors would wait for it. Never freed, on purpose.
  if (!status.ok()) {
    static auto* const kept = std::make_unique<std::list<std::vector<Comm>>>().release();
    static Mutex* const mu = std::make_unique<Mutex>().release();
    MutexLock lock(*mu);
    kept->push_back(std::move(aborted));
  }
  return status;
}

}  // namespace kaon::kernels::cuda
