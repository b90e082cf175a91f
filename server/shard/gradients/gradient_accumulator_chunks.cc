// Adds the chunks of a push stream to the sums: checks all first, then adds one by one.
#include <utility>

#include "job/definition.h"
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

// Checks that each chunk fits its parameter and arrived unchanged. The job must have the
// parameters.
absl::Status CheckChunks(const v1::JobDefinition& job, uint64_t min_chunk_bytes,
                         absl::Span<const proto::ChunkView> chunks) {
  for (const proto::ChunkView& view : chunks) {
    const v1::ParameterSpec& spec = job.parameters(static_cast<int>(view.chunk->parameter_id()));
    KAON_RETURN_IF_ERROR(CheckChunk({spec.name(), job::NumElements(spec), min_chunk_bytes},
                                    *view.chunk, BytesOf(view.payload)));
  }
  for (const proto::ChunkView& view : chunks) {
    KAON_RETURN_IF_ERROR(proto::VerifyChecksum(*view.chunk, view.payload));
  }
  return absl::OkStatus();
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
                                    *chunk,
                                    chunk->num_elements() * proto::WireSizeOf(chunk->dtype())));
  }
  return absl::OkStatus();
}

absl::Status GradientAccumulator::AddChunks(PushStreamId stream_id,
                                            absl::Span<const proto::ChunkView> chunks) {
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
  KAON_RETURN_IF_ERROR(CheckChunks(registration->definition(), options_.min_chunk_bytes, chunks));
  uint64_t left_bytes = 0;
  for (const proto::ChunkView& view : chunks) left_bytes += BytesOf(view.payload);
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
    const uint64_t bytes = BytesOf(chunks[i].payload);
    const size_t released_before = released.size();
    MutexLock parameter_lock(parameter.mu);
    if (parameter.generation != generation) {
      status = absl::AbortedError("the push stream is over");
      break;
    }
    const auto hold = parameter.fold->AddFolds(rank, *chunks[i].chunk)
                          ? parameter.sum->PinForWrite()
                          : tier::PageHold();
    if (status = hold.status(); !status.ok()) break;
    status = parameter.fold->Add(rank, *chunks[i].chunk, chunks[i].payload, room, &released);
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
