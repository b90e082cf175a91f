#include "server/shard/state_load.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

// A frozen state of step 1, and memory for the same job.
class StateLoadTest : public testing::Test {
 protected:
  StateLoadTest() {
    shard_.Load();
    shard_.Train(1, {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}});
    freeze_ = shard_.core().Freeze().value();
    part_ = freeze_->part();
    for (const v1::CheckpointTensor& tensor : freeze_->tensors()) *part_.add_tensors() = tensor;
    parameters_ =
        ParameterStore::Create({memory_.store()}, memory_.backend(), MakeRegistration(), 0, 1)
            .value();
    publisher_.Serve("gpt2", 1, parameters_->sources());
  }

  absl::Status Load(const ReadTensor& read) {
    return LoadState(part_, 1, read, *parameters_, publisher_);
  }
  ReadTensor ReadFrozen() {
    return [this](const v1::CheckpointTensor& tensor, uint64_t offset, absl::Span<char> to) {
      return freeze_->Read(tensor.parameter_id(), tensor.role(), offset, to);
    };
  }

  DrivenShard shard_;
  std::unique_ptr<StateFreeze> freeze_;
  v1::CheckpointPart part_;
  ShardMemory memory_{1 << 16};
  ParameterPublisher publisher_{memory_.backend()};
  std::unique_ptr<ParameterStore> parameters_;
};

TEST_F(StateLoadTest, TheStateIsTheFrozenOne) {
  ASSERT_EQ(Load(ReadFrozen()), absl::OkStatus());
  const ParameterStore& frozen = *shard_.core().parameters();
  EXPECT_EQ(parameters_->Digests().state, frozen.Digests().state);
  EXPECT_EQ(parameters_->parameters()[0].updates_applied, 1u);
  EXPECT_EQ(parameters_->parameters()[0].newton_schulz_updates, 1u);
  EXPECT_EQ(memory_.Floats(WeightsOf(parameters_->Get(0))),
            shard_.memory().Floats(WeightsOf(frozen.Get(0))));
  EXPECT_TRUE(publisher_.IsReadable(0, 1));
}

TEST_F(StateLoadTest, NamesBothDigestsOfAnotherState) {
  const ReadTensor read = ReadFrozen();
  const absl::Status status =
      Load([&](const v1::CheckpointTensor& tensor, uint64_t offset, absl::Span<char> to) {
        const absl::Status good = read(tensor, offset, to);
        to[0] ^= 1;
        return good;
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StartsWith(status.message(), "the snapshot of position 3 was made with "))
      << status;
}

TEST_F(StateLoadTest, NamesATensorOfAnotherSize) {
  v1::CheckpointTensor& tensor = *part_.mutable_tensors(0);
  tensor.set_num_elements(tensor.num_elements() + 1);
  const absl::Status status = Load(ReadFrozen());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "28 bytes of parameter_id 0 ")) << status;
  EXPECT_TRUE(absl::EndsWith(status.message(), ", expecting 24")) << status;
}

TEST_F(StateLoadTest, ReturnsTheErrorsOfItsReader) {
  const absl::Status status = absl::UnavailableError("later");
  EXPECT_EQ(Load([&](const v1::CheckpointTensor&, uint64_t, absl::Span<char>) { return status; }),
            status);
}

}  // namespace
}  // namespace kaon::shard
