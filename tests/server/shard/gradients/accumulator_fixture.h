// Two workers that push to a GradientAccumulator by plain calls. Its tests share this. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_GRADIENTS_ACCUMULATOR_FIXTURE_H_
#define KAON_TESTS_SERVER_SHARD_GRADIENTS_ACCUMULATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "proto/crc32c.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/shard_memory.h"
#include "tests/server/shard/gradients/swapped_sums.h"

namespace kaon::shard {

inline constexpr uint32_t kW = 0;
inline constexpr uint32_t kB = 1;
inline constexpr uint32_t kFrozen = 2;

struct PushingWorker {
  PushStreamId stream = 0;
  v1::PushOpened opened;
  std::shared_ptr<uint64_t> credit = std::make_shared<uint64_t>(0);
  std::shared_ptr<std::vector<absl::Status>> ended = std::make_shared<std::vector<absl::Status>>();
};

class AccumulatorFixture : public testing::Test {
 protected:
  AccumulatorFixture() { Restart(2 * proto::kMaxChunkBytes); }

  void Restart(uint64_t staging_bytes) {
    accumulator_.reset();
    folded_.clear();
    folded_parameters_.clear();
    GradientAccumulator::Options options;
    options.store = &memory_.store();
    options.backend = &memory_.backend();
    options.staging = &memory_.host();
    options.staging_bytes = staging_bytes;
    if (ShardMemory::is_nvme()) options.swapped = &sums_.memory();
    options.on_folded = [this](uint64_t generation) { folded_.push_back(generation); };
    options.on_parameter_folded = [this](uint64_t generation, uint32_t parameter_id) {
      folded_parameters_.push_back({generation, parameter_id});
    };
    accumulator_ = std::make_unique<GradientAccumulator>(options);
    ASSERT_TRUE(Reserve(registration_).ok());
    accumulator_->ExpectStep({"gpt2", 1, 1});
  }
  absl::Status Reserve(const v1::RegisterBody& registration) {
    std::set<uint32_t> on_disk;
    if (ShardMemory::is_nvme()) on_disk = {kW, kB, kFrozen};
    return accumulator_->Reserve(registration, 0, on_disk);
  }
  // Begins step 1, generation 1.
  void Begin() { accumulator_->BeginFolding(plan_, 1); }

  v1::PushOpen OpenRequest(uint32_t rank, uint64_t step = 1) {
    v1::PushOpen open;
    open.set_job("gpt2");
    open.set_timeline(1);
    open.set_step(step);
    open.set_rank(rank);
    *open.mutable_attempt()->mutable_ballot() = MakeBallot(1);
    open.mutable_attempt()->set_number(rank + 1);
    return open;
  }
  absl::StatusOr<PushingWorker> TryOpen(const v1::PushOpen& request) {
    PushingWorker worker;
    PushCallbacks callbacks;
    callbacks.on_credit = [credit = worker.credit](uint64_t bytes) { *credit += bytes; };
    callbacks.on_ended = [ended = worker.ended](const absl::Status& status) {
      ended->push_back(status);
    };
    absl::StatusOr<OpenPush> opened = accumulator_->Open(request, callbacks);
    if (!opened.ok()) return opened.status();
    worker.stream = opened->stream;
    worker.opened = opened->opened;
    return worker;
  }
  PushingWorker Open(uint32_t rank) {
    absl::StatusOr<PushingWorker> worker = TryOpen(OpenRequest(rank));
    EXPECT_TRUE(worker.ok()) << worker.status();
    return worker.ok() ? *worker : PushingWorker();
  }

  static v1::TensorChunk Header(uint32_t parameter, uint64_t offset,
                                const std::vector<std::byte>& payload,
                                v1::DType dtype = v1::DTYPE_FLOAT32) {
    v1::TensorChunk chunk;
    chunk.set_parameter_id(parameter);
    chunk.set_offset(offset);
    chunk.set_dtype(dtype);
    chunk.set_num_elements(payload.size() / std::max<size_t>(1, proto::WireSizeOf(dtype)));
    chunk.set_crc32c(proto::Crc32c(payload.data(), payload.size()));
    return chunk;
  }
  static std::vector<std::byte> Encode(const std::vector<float>& values,
                                       v1::DType dtype = v1::DTYPE_FLOAT32) {
    std::vector<std::byte> bytes(values.size() * proto::WireSizeOf(dtype));
    kernels::FromFloat(static_cast<kernels::DType>(dtype), values, bytes.data());
    return bytes;
  }
  // Adds a message of one chunk.
  static absl::Status AddOne(GradientAccumulator& accumulator, PushStreamId stream,
                             const v1::TensorChunk& chunk, proto::Slices payload) {
    return accumulator.AddChunks(stream, {{&chunk, payload}});
  }
  absl::Status Push(const PushingWorker& worker, uint32_t parameter, uint64_t offset,
                    const std::vector<float>& values, uint32_t micro_batch = 0) {
    const std::vector<std::byte> payload = Encode(values);
    v1::TensorChunk chunk = Header(parameter, offset, payload);
    chunk.set_micro_batch(micro_batch);
    return AddOne(*accumulator_, worker.stream, chunk, {absl::MakeConstSpan(payload)});
  }
  absl::Status Finish(const PushingWorker& worker, std::vector<uint32_t> missing = {}) {
    v1::PushFinish finish;
    for (uint32_t id : missing) finish.add_missing_parameters(id);
    return accumulator_->Finish(worker.stream, finish);
  }
  // Pushes 6 elements of w and 4 of b, and finishes.
  void PushAll(const PushingWorker& worker, float scale) {
    ASSERT_TRUE(
        Push(worker, kW, 0, {scale, 2 * scale, 3 * scale, 4 * scale, 5 * scale, 6 * scale}).ok());
    ASSERT_TRUE(Push(worker, kB, 0, {scale, scale, scale, scale}).ok());
    ASSERT_TRUE(Finish(worker).ok());
  }
  std::vector<float> Gradient(uint32_t parameter) {
    const absl::StatusOr<PinnedGradient> gradient = accumulator_->Gradient(parameter);
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    return gradient.ok() ? memory_.Floats(gradient->values) : std::vector<float>();
  }
  static void ExpectInvalid(const absl::Status& status, absl::string_view words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  }

  v1::RegisterBody registration_ = MakeRegistration();
  v1::StepPlan plan_ = TrainPlan(1, 1, 1);
  ShardMemory memory_{1 << 20};
  SwappedSums sums_;
  std::vector<uint64_t> folded_;
  std::vector<std::pair<uint64_t, uint32_t>> folded_parameters_;
  std::unique_ptr<GradientAccumulator> accumulator_;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_GRADIENTS_ACCUMULATOR_FIXTURE_H_
