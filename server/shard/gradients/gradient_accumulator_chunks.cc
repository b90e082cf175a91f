// Adds the chunks of a push stream to the sums: checks all first, then adds one by one.
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "kernels/nccl/device_link.h"
#include "kernels/reduce/digest.h"
#include "proto/crc32c.h"
#include "proto/status_macros.h"
#include "server/shard/gradients/chunk_check.h"
#include "server/shard/gradients/gradient_accumulator.h"

namespace kaon::shard {

namespace {

uint64_t BytesOf(proto::Slices payload) {
  uint64_t bytes = 0;
  for (const auto& slice : payload) bytes += slice.size();
  return bytes;
}

uint64_t HeaderBytes(const v1::TensorChunk& chunk) {
  return chunk.num_elements() * proto::WireSizeOf(chunk.dtype());
}

// Checks that each chunk fits its parameter and arrived unchanged. The digest of chunks on the
// device was checked before. The job must have the parameters.
absl::Status CheckChunks(const v1::JobDefinition& job, uint64_t min_chunk_bytes,
                         absl::Span<const proto::ChunkView> chunks, bool on_device) {
  for (const proto::ChunkView& view : chunks) {
    const v1::ParameterSpec& spec = job.parameters(static_cast<int>(view.chunk->parameter_id()));
    KAON_RETURN_IF_ERROR(CheckChunk({spec.name(), job::NumElements(spec), min_chunk_bytes},
                                    *view.chunk,
                                    on_device ? HeaderBytes(*view.chunk) : BytesOf(view.payload)));
  }
  if (on_device) return absl::OkStatus();
  for (const proto::ChunkView& view : chunks) {
    KAON_RETURN_IF_ERROR(proto::VerifyChecksum(*view.chunk, view.payload));
  }
  return absl::OkStatus();
}

// A chunk of the device, as the host has it.
struct HostChunk {
  v1::TensorChunk chunk;
  std::vector<std::byte> bytes;
};

// Copies a chunk that is not folded now. UNAVAILABLE if it changed on the way: the worker has it.
absl::StatusOr<HostChunk> CopyToHost(kernels::Backend& backend, const v1::TensorChunk& chunk,
                                     const DeviceBytes& bytes) {
  HostChunk copy;
  copy.chunk = chunk;
  copy.bytes.resize(bytes.memory.size());
  backend.CopyOut(bytes.memory, absl::MakeSpan(copy.bytes));
  const uint64_t digest =
      kernels::TensorDigester(chunk.parameter_id(), kernels::kTransferSlot).OfBytes(copy.bytes, 0);
  if (digest != bytes.digest) {
    return absl::UnavailableError(
        absl::StrCat("chunk of parameter_id ", chunk.parameter_id(), " at offset ", chunk.offset(),
                     " has digest ", absl::Hex(bytes.digest, absl::kZeroPad16), " on the device, ",
                     absl::Hex(digest, absl::kZeroPad16), " on the host"));
  }
  copy.chunk.set_crc32c(proto::Crc32c(copy.bytes.data(), copy.bytes.size()));
  return copy;
}

// Returns the part of each chunk; empty ones if the payloads are not on the device.
std::vector<DeviceBytes> Split(kernels::Backend& backend, const DeviceBytes& all,
                               absl::Span<const proto::ChunkView> chunks) {
  std::vector<DeviceBytes> parts(chunks.size());
  if (all.memory.empty()) return parts;
  if (chunks.size() == 1) return {all};
  uint64_t at = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    parts[i].memory = all.memory.Sub(at, HeaderBytes(*chunks[i].chunk));
    at += parts[i].memory.size();
    parts[i].digest =
        backend.Digest(chunks[i].chunk->parameter_id(), kernels::kTransferSlot, parts[i].memory);
  }
  return parts;
}

// Adds one chunk. Of the device, it folds where it is; what must wait, or came before, is copied.
absl::Status AddLocked(kernels::Backend& backend, SummedParameter& parameter, uint32_t rank,
                       const proto::ChunkView& view, const DeviceBytes& on_device, uint64_t room,
                       std::vector<ReleasedBytes>* released)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu) {
  const bool folds = parameter.fold->AddFolds(rank, *view.chunk);
  const auto hold = folds ? parameter.sum->PinForWrite() : tier::PageHold();
  if (!hold.ok()) return hold.status();
  if (folds || on_device.memory.empty()) {
    return parameter.fold->Add(rank, *view.chunk, view.payload, room, released, on_device);
  }
  KAON_ASSIGN_OR_RETURN(const HostChunk copy, CopyToHost(backend, *view.chunk, on_device));
  const absl::Span<const std::byte> payload = copy.bytes;
  return parameter.fold->Add(rank, copy.chunk, {&payload, 1}, room, released);
}

}  // namespace

absl::Status GradientAccumulator::CheckHeaders(
    PushStreamId stream, absl::Span<const v1::TensorChunk* const> chunks) const {
  std::shared_ptr<const v1::RegisterBody> registration;
  {
    MutexLock lock(mu_);
    KAON_RETURN_IF_ERROR(streams_.Find(stream).status());
    for (const v1::TensorChunk* const chunk : chunks) {
      KAON_RETURN_IF_ERROR(FindParameterLocked(chunk->parameter_id()).status());
    }
    registration = registration_;
  }
  const v1::JobDefinition& job = registration->definition();
  for (const v1::TensorChunk* const chunk : chunks) {
    const v1::ParameterSpec& spec = job.parameters(static_cast<int>(chunk->parameter_id()));
    KAON_RETURN_IF_ERROR(CheckChunk({spec.name(), job::NumElements(spec), options_.min_chunk_bytes},
                                    *chunk, HeaderBytes(*chunk)));
  }
  return absl::OkStatus();
}

absl::Status GradientAccumulator::AddChunks(PushStreamId stream_id,
                                            absl::Span<const proto::ChunkView> chunks,
                                            const DeviceBytes& on_device) {
  PhaseTimer timer(options_.phases, Phase::kReceive);
  std::vector<std::shared_ptr<Parameter>> parameters;
  std::shared_ptr<const v1::RegisterBody> registration;
  {
    MutexLock lock(mu_);
    KAON_RETURN_IF_ERROR(streams_.Find(stream_id).status());
    for (const proto::ChunkView& view : chunks) {
      KAON_ASSIGN_OR_RETURN(std::shared_ptr<Parameter> parameter,
                            FindParameterLocked(view.chunk->parameter_id()));
      parameters.push_back(std::move(parameter));
    }
    registration = registration_;
  }
  // Check before the first addition: a sum cannot be undone.
  KAON_RETURN_IF_ERROR(CheckChunks(registration->definition(), options_.min_chunk_bytes, chunks,
                                   !on_device.memory.empty()));
  const std::vector<DeviceBytes> parts = Split(*options_.backend, on_device, chunks);
  uint64_t left_bytes = 0;
  for (const proto::ChunkView& view : chunks) left_bytes += HeaderBytes(*view.chunk);
  uint32_t rank = 0;
  uint64_t generation = 0;
  // The stream that receives the credit.
  PushStreamId push = 0;
  uint64_t room = 0;
  {
    MutexLock lock(mu_);
    KAON_ASSIGN_OR_RETURN(const PushRegistry::Stream* const stream, streams_.Find(stream_id));
    rank = stream->rank;
    generation = stream->generation;
    push = stream->joined.value_or(stream_id);
    Worker& worker = workers_[rank];
    room = RoomLocked(worker);
    // Count first: a stream that the rank opens meanwhile must not get credit for these bytes.
    worker.staged_bytes += left_bytes;
  }
  std::vector<ReleasedBytes> released;
  absl::Status status;
  Calls calls;
  timer.Next(Phase::kFold);
  for (size_t i = 0; i < chunks.size(); ++i) {
    Parameter& parameter = *parameters[i];
    const uint64_t bytes = HeaderBytes(*chunks[i].chunk);
    const size_t released_before = released.size();
    MutexLock parameter_lock(parameter.mu);
    if (parameter.generation != generation) {
      status = absl::AbortedError("the push stream is over");
      break;
    }
    status = AddLocked(*options_.backend, parameter, rank, chunks[i], parts[i], room, &released);
    CheckSettledLocked(parameter, generation, &calls);
    if (!status.ok()) break;
    left_bytes -= bytes;
    // A staged chunk leaves less room for the chunks after it.
    if (released.size() == released_before) room -= bytes;
  }
  {
    MutexLock lock(mu_);
    // A new generation has reset the workers' byte counts.
    if (generation_ == generation) {
      ReleaseLocked(released, &calls);
      if (!status.ok()) ForgetRefusedLocked(rank, push, left_bytes, &calls);
    }
  }
  for (const auto& call : calls) call();
  return status;
}

}  // namespace kaon::shard
