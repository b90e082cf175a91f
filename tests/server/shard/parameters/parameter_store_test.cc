#include "server/shard/parameters/parameter_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cpu/update_workspace.h"
#include "server/tier/host_tier.h"
#include "server/tier/tiered_store.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

class ParameterStoreTest : public testing::Test {
 protected:
  static kernels::BackendOptions TwoThreads() {
    kernels::BackendOptions options;
    options.gemm = "onednn";
    options.threads = 2;
    return options;
  }

  absl::StatusOr<std::unique_ptr<ParameterStore>> Create() {
    return ParameterStore::Create({store_}, memory_.backend(), registration_, 0, 1);
  }
  void ExpectRefused(absl::string_view words) {
    const absl::Status status = Create().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
    EXPECT_EQ(store_.used_bytes(), 0u);
  }

  ShardMemory memory_{1 << 16, TwoThreads()};
  tier::TieredStore& store_ = memory_.store();
  v1::RegisterBody registration_ = MakeRegistration();
};

// Edge 26: all of it before the first gradient, if there ever is one.
TEST_F(ParameterStoreTest, GivesEachParameterTheStateItsRuleNeeds) {
  const absl::StatusOr<std::unique_ptr<ParameterStore>> parameters = Create();
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  const std::vector<StoredParameter>& stored = (*parameters)->parameters();
  ASSERT_EQ(stored.size(), 3u);
  EXPECT_EQ(stored[0].state_slots.size(), 1u);
  EXPECT_EQ(stored[1].state_slots.size(), 2u);
  EXPECT_EQ(stored[2].state_slots.size(), 0u);
  // A frozen parameter has one buffer of weights.
  EXPECT_EQ(stored[0].place.home->next(stored[0].place.unit), 1);
  EXPECT_EQ(stored[2].place.home->next(stored[2].place.unit), 0);
  EXPECT_FALSE(stored[2].rule.has_value());
  // Two buffers of weights, the gradient, and the slots of the rule.
  EXPECT_EQ(stored[0].state_bytes, 6u * 4 * 4);
  EXPECT_EQ(stored[1].state_bytes, 4u * 4 * 5);
  EXPECT_EQ(stored[2].state_bytes, 5u * 4 * 2);
}

// Edge 26: the state is zero, whatever the memory held before.
TEST_F(ParameterStoreTest, StateBeginsAsZeros) {
  for (const unsigned char fill : {0xff, 0x00}) {
    const absl::StatusOr<std::unique_ptr<ParameterStore>> parameters = Create();
    ASSERT_TRUE(parameters.ok()) << parameters.status();
    for (const StoredParameter& parameter : (*parameters)->parameters()) {
      for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
        const kernels::Region slot = SlotOf(parameter, i);
        const std::vector<std::byte> zeros(slot.size());
        ASSERT_EQ(memory_.Bytes(slot), zeros) << parameter.name;
        memory_.Write(slot, std::vector<std::byte>(zeros.size(), std::byte{fill}));
      }
    }
  }
}

TEST_F(ParameterStoreTest, TakesOnlyTheParametersOfItsShard) {
  registration_.mutable_placement()->set_num_shards(2);
  registration_.mutable_placement()->mutable_parameters(1)->set_shard(1);
  const auto parameters = ParameterStore::Create({store_}, memory_.backend(), registration_, 1, 2);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  ASSERT_EQ((*parameters)->parameters().size(), 1u);
  EXPECT_EQ((*parameters)->parameters()[0].name, "b");
}

TEST_F(ParameterStoreTest, ReturnsItsMemory) {
  { const auto parameters = Create(); }
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(ParameterStoreTest, NamesTheParameterThatDoesNotFit) {
  ShardMemory memory(4 * ShardMemory::least_extent(), TwoThreads());
  tier::TieredStore& store = memory.store();
  const absl::Status status =
      ParameterStore::Create({store}, memory.backend(), registration_, 0, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("parameter b: tensor"), absl::string_view::npos) << status;
  EXPECT_EQ(store.used_bytes(), 0u);
}

// The store reserves the workspace of the largest update (P17).
TEST_F(ParameterStoreTest, SetsAsideWhatTheLargestUpdateTakes) {
  {
    const auto parameters = Create();
    ASSERT_TRUE(parameters.ok()) << parameters.status();
    const uint64_t tensors = store_.used_bytes();
    const uint64_t workspace =
        kernels::UpdateWorkspaceBytes("cpu/onednn", 2, *(*parameters)->parameters()[0].rule,
                                      (*parameters)->parameters()[0].shape);
    ASSERT_GT(workspace, 0u);
    ASSERT_TRUE((*parameters)->ReserveWorkspace().ok());
    EXPECT_EQ(store_.used_bytes(), tensors + workspace);
  }
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(ParameterStoreTest, SetsAsideWhatSmallParametersTakeSideBySide) {
  // Adds another matrix like the first one. Two updates of one thread each need more memory than
  // one update of both threads.
  v1::JobDefinition& job = *registration_.mutable_definition();
  *job.add_parameters() = job.parameters(0);
  job.mutable_parameters(job.parameters_size() - 1)->set_name("w2");
  v1::ParameterPlacement& placement = *registration_.mutable_placement()->add_parameters();
  placement = registration_.placement().parameters(0);
  placement.set_parameter_id(static_cast<uint32_t>(job.parameters_size()) - 1);
  const auto parameters = Create();
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  const uint64_t tensors = store_.used_bytes();
  const StoredParameter& first = (*parameters)->parameters()[0];
  const uint64_t alone = kernels::UpdateWorkspaceBytes("cpu/onednn", 1, *first.rule, first.shape);
  ASSERT_GT(2 * alone, kernels::UpdateWorkspaceBytes("cpu/onednn", 2, *first.rule, first.shape));
  ASSERT_TRUE((*parameters)->ReserveWorkspace().ok());
  EXPECT_EQ(store_.used_bytes(), tensors + 2 * alone);
}

TEST_F(ParameterStoreTest, NamesTheParameterWhoseUpdateDoesNotFit) {
  const uint64_t capacity = 8 * ShardMemory::least_extent();
  ShardMemory memory(capacity, TwoThreads());
  tier::TieredStore& store = memory.store();
  const auto parameters = ParameterStore::Create({store}, memory.backend(), registration_, 0, 1);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  const uint64_t tensors = store.used_bytes();
  const absl::Status status = (*parameters)->ReserveWorkspace();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("parameter w: an update takes "), absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find(absl::StrCat("free = ", capacity, " capacity")),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(store.used_bytes(), tensors);
}

TEST_F(ParameterStoreTest, RefusesWhatTheBackendHasNoMemoryForElsewhere) {
  class FullBackend final : public kernels::ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    absl::Status Reserve(absl::Span<const kernels::SizedUpdate> updates) override {
      return absl::ResourceExhaustedError(absl::StrCat("no room for ", updates.size()));
    }
  };
  FullBackend backend(kernels::CreateBackend(TwoThreads()).value());
  // Its own memory: that of the fixture may be another backend's.
  tier::HostTier host(uint64_t{1} << 30);
  tier::TieredStore store(host);
  const auto parameters = ParameterStore::Create({store}, backend, registration_, 0, 1);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  EXPECT_EQ((*parameters)->ReserveWorkspace(), absl::ResourceExhaustedError("no room for 3"));
}

TEST_F(ParameterStoreTest, RefusesAPlacementOfOtherParameters) {
  registration_.mutable_placement()->mutable_parameters()->RemoveLast();
  ExpectRefused("placement of 2 parameters, the job has 3");
}

TEST_F(ParameterStoreTest, RefusesAPlacementOutOfOrder) {
  registration_.mutable_placement()->mutable_parameters()->SwapElements(0, 1);
  ExpectRefused("placement 0 is of parameter_id 1, expecting 0");
}

TEST_F(ParameterStoreTest, RefusesAPlacementBeyondTheShards) {
  registration_.mutable_placement()->mutable_parameters(0)->set_shard(1);
  ExpectRefused("parameter w is placed on shard 1, there are 1");
}

TEST_F(ParameterStoreTest, RefusesARouteToNoGroup) {
  registration_.mutable_placement()->mutable_parameters(1)->set_group("other");
  ExpectRefused("parameter b is routed to group 'other'");
}

TEST_F(ParameterStoreTest, RefusesARouteOfAFrozenParameter) {
  registration_.mutable_placement()->mutable_parameters(2)->set_group("scalars");
  ExpectRefused("parameter f is routed to group 'scalars', expecting none");
}

TEST_F(ParameterStoreTest, RefusesARuleThatCannotStepTheShape) {
  registration_.mutable_placement()->mutable_parameters(1)->set_group("matrices");
  EXPECT_EQ(Create().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(ParameterStoreTest, RefusesADefinitionThatIsInvalid) {
  registration_.mutable_definition()->mutable_groups(0)->set_lr(-1);
  EXPECT_EQ(Create().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::shard
