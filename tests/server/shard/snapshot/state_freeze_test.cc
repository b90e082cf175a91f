// A reader of a frozen state gets the state at that position, whatever is written meanwhile.
#include "server/shard/snapshot/state_freeze.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/state_tensors.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/device/shard_memory.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

using Bytes = std::map<std::pair<uint32_t, std::string>, std::string>;

uint64_t SizeOf(const v1::CheckpointTensor& tensor) {
  return checkpoint::StateBytes(tensor.dtype(), tensor.num_elements());
}

// Parameters w, b and f of plans.h, written without any step.
class Parameters {
 public:
  explicit Parameters(uint64_t seed) : random_(seed) {
    registration_ = MakeRegistration();
    registration_.mutable_definition()->mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_INT8);
    parameters_ =
        *ParameterStore::Create({memory_.store()}, memory_.backend(), registration_, 0, 1);
    publisher_.Serve("gpt2", 1, parameters_->sources());
    for (StoredParameter& parameter : parameters_->parameters()) Write(parameter, false);
  }

  std::mt19937_64& random() { return random_; }
  FreezeList& freezes() { return freezes_; }
  const ParameterStore& store() const { return *parameters_; }
  const ParameterPublisher& publisher() const { return publisher_; }

  AgreementSnapshot Facts() const {
    AgreementSnapshot facts;
    facts.num_shards = 1;
    facts.state.set_applied_position(position_);
    facts.state.set_timeline(1);
    facts.state.set_weights_loaded(true);
    *facts.state.mutable_registration() = registration_;
    return facts;
  }

  std::unique_ptr<StateFreeze> Freeze(uint64_t copy_bytes) {
    auto freeze = freezes_.Add(Facts(), *parameters_, copy_bytes);
    EXPECT_TRUE(freeze.ok()) << freeze.status();
    return *std::move(freeze);
  }

  // Returns the present state.
  Bytes State() {
    Bytes state;
    for (const StoredParameter& parameter : parameters_->parameters()) {
      state[{parameter.id, "weight"}] = BytesOf(WeightsOf(parameter));
      for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
        state[{parameter.id, parameter.state_slots[i].name}] = BytesOf(SlotOf(parameter, i));
      }
    }
    return state;
  }

  // Writes as a step does; some parameters are left alone.
  void Step() {
    ++position_;
    for (StoredParameter& parameter : parameters_->parameters()) {
      if (parameter.rule.has_value() && random_() % 4 != 0) {
        Write(parameter, true);
      } else {
        publisher_.PublishUnchanged(parameter.id, position_);
      }
    }
  }

 private:
  std::string BytesOf(kernels::ConstRegion region) {
    const std::vector<std::byte> bytes = memory_.Bytes(region);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void WriteRandom(kernels::Region region) {
    std::vector<std::byte> bytes(region.size());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    memory_.Write(region, bytes);
  }
  void Write(StoredParameter& parameter, bool announced) {
    tier::UnitUpdatePin pinned = *publisher_.BeginWrite(parameter.id);
    if (announced) freezes_.BeforeWrite(parameter.id, pinned.next_version());
    WriteRandom(pinned.next_weights());
    for (const kernels::Region& slot : pinned.states()) WriteRandom(slot);
    parameter.updates_applied += announced ? 1 : 0;
    publisher_.Publish(parameter.id, position_, std::move(pinned));
  }

  std::mt19937_64 random_;
  ShardMemory memory_{1 << 16};
  v1::RegisterBody registration_;
  ParameterPublisher publisher_{memory_.backend()};
  std::unique_ptr<ParameterStore> parameters_;
  FreezeList freezes_;
  uint64_t position_ = 2;
};

// Reads one state in small pieces, its tensors in some order.
class Reader {
 public:
  Reader(std::unique_ptr<StateFreeze> freeze, uint64_t seed)
      : freeze_(std::move(freeze)), random_(seed), order_(freeze_->tensors()) {
    std::shuffle(order_.begin(), order_.end(), random_);
  }

  bool done() const { return order_.empty(); }
  const Bytes& read() const { return read_; }
  const StateFreeze& freeze() const { return *freeze_; }

  void ReadSome() {
    const v1::CheckpointTensor& tensor = order_.back();
    std::string& bytes = read_[{tensor.parameter_id(), tensor.role()}];
    std::string piece(std::min<uint64_t>(1 + random_() % 9, SizeOf(tensor) - bytes.size()), '\0');
    const absl::Status status = freeze_->Read(tensor.parameter_id(), tensor.role(), bytes.size(),
                                              absl::MakeSpan(&piece[0], piece.size()));
    ASSERT_TRUE(status.ok()) << status;
    bytes += piece;
    if (bytes.size() == SizeOf(tensor)) order_.pop_back();
  }

 private:
  std::unique_ptr<StateFreeze> freeze_;
  std::mt19937_64 random_;
  std::vector<v1::CheckpointTensor> order_;
  Bytes read_;
};

// Pieces, steps, new freezes and readers that stop, in any order, with two freezes at a time.
TEST(StateFreezeTest, ReaderGetsTheStateOfItsPositionWhateverIsWrittenMeanwhile) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Parameters parameters(seed);
    std::vector<std::pair<Bytes, std::unique_ptr<Reader>>> readers;
    for (int i = 0; i < 400; ++i) {
      const uint64_t choice = parameters.random()() % 100;
      if (choice < 10 && readers.size() < 2) {
        auto freeze = parameters.Freeze(FreezeList::kCopyBytes);
        readers.emplace_back(parameters.State(), std::make_unique<Reader>(std::move(freeze), i));
      } else if (choice < 30) {
        parameters.Step();
      } else if (!readers.empty()) {
        auto& [expected, reader] = readers[choice % readers.size()];
        reader->ReadSome();
        if (reader->done()) {
          ASSERT_EQ(reader->read(), expected) << "seed " << seed;
          ++compared;
        }
        if (reader->done() || choice == 99)
          readers.erase(readers.begin() + choice % readers.size());
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

// The budget of each of two freezes holds one parameter, or none: steps wait, and nothing is lost.
TEST(StateFreezeTest, StepsWaitForReadersOnceTheBudgetIsUsedUp) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Parameters parameters(seed);
    const uint64_t copy_bytes = seed % 2 == 0 ? 48 : 1;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      const Bytes expected = parameters.State();
      threads.emplace_back([expected, seed, freeze = parameters.Freeze(copy_bytes)]() mutable {
        Reader reader(std::move(freeze), seed);
        while (!reader.done()) reader.ReadSome();
        EXPECT_EQ(reader.read(), expected) << "seed " << seed;
      });
      for (int step = 0; step < 3; ++step) parameters.Step();
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// One parameter larger than the budget is read to its end first.
TEST(StateFreezeTest, StepWaitsUntilALargeParameterIsRead) {
  Parameters parameters(1);
  const Bytes expected = parameters.State();
  Reader reader(parameters.Freeze(1), 1);
  std::thread steps([&parameters] {
    for (int i = 0; i < 4; ++i) parameters.Step();
  });
  while (!reader.freeze().is_waited_for()) std::this_thread::yield();
  while (!reader.done()) reader.ReadSome();
  steps.join();
  EXPECT_EQ(reader.read(), expected);
  EXPECT_FALSE(reader.freeze().is_waited_for());
}

TEST(StateFreezeTest, ReaderThatGivesUpIsNotWaitedFor) {
  Parameters parameters(1);
  std::unique_ptr<StateFreeze> freeze = parameters.Freeze(1);
  std::thread steps([&parameters] {
    for (int i = 0; i < 4; ++i) parameters.Step();
  });
  while (!freeze->is_waited_for()) std::this_thread::yield();
  freeze.reset();
  steps.join();
}

TEST(StateFreezeTest, ReaderIsToldThatTheMemoryGoes) {
  Parameters parameters(1);
  const std::unique_ptr<StateFreeze> freeze = parameters.Freeze(1);
  parameters.freezes().EndAll();
  char to[4];
  EXPECT_EQ(freeze->Read(0, "weight", 0, absl::MakeSpan(to)).code(), absl::StatusCode::kCancelled);
}

TEST(StateFreezeTest, RefusesAnyOtherRangeNamingBoth) {
  Parameters parameters(1);
  const std::unique_ptr<StateFreeze> freeze = parameters.Freeze(1);
  char to[24];
  const auto refused = [&](uint32_t id, const char* role, uint64_t offset, size_t size) {
    const absl::Status status = freeze->Read(id, role, offset, absl::MakeSpan(to, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(refused(7, "weight", 0, 4), "parameter_id 7 weight is no tensor of this shard");
  EXPECT_EQ(refused(0, "exp_avg", 0, 4), "parameter_id 0 exp_avg is no tensor of this shard");
  EXPECT_EQ(refused(0, "weight", 4, 4),
            "parameter_id 0 weight: 4 bytes from 4 on read, expecting from 0 and at most to 24");
  EXPECT_EQ(refused(1, "weight", 0, 20),
            "parameter_id 1 weight: 20 bytes from 0 on read, expecting from 0 and at most to 16");
}

TEST(StateFreezeTest, DescribesWhatIsFrozen) {
  Parameters parameters(1);
  parameters.Step();
  const std::unique_ptr<StateFreeze> freeze = parameters.Freeze(1);
  const StateDigests digests = parameters.store().Digests();
  const v1::CheckpointPart& part = freeze->part();
  EXPECT_EQ(part.job(), "gpt2");
  EXPECT_EQ(part.position(), 3u);
  EXPECT_EQ(part.timeline(), 1u);
  EXPECT_EQ(part.weights_digest(), digests.weights);
  EXPECT_EQ(part.state_digest(), digests.state + parameters.store().PositionDigest(3));
  ASSERT_EQ(part.parameters_size(), 3);
  EXPECT_EQ(part.parameters(1).updates_applied(),
            parameters.store().parameters()[1].updates_applied);
  std::vector<std::string> names;
  uint64_t num_bytes = 0;
  for (const v1::CheckpointTensor& tensor : freeze->tensors()) {
    names.push_back(absl::StrCat(tensor.parameter_id(), " ", tensor.role()));
    num_bytes += SizeOf(tensor);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0 momentum_buffer", "0 weight", "1 exp_avg",
                                             "1 exp_avg_sq", "1 weight", "2 weight"}));
  EXPECT_EQ(freeze->num_bytes(), num_bytes);
  // int8: six bytes and a scale.
  EXPECT_EQ(num_bytes, 8u + 24 + 3 * 16 + 20);
}

// The core announces each write before it, and freezes right after an entry.
TEST(StateFreezeTest, StepsOfAShardLeaveWhatIsFrozenAlone) {
  const std::vector<std::vector<float>> gradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};
  DrivenShard shard;
  EXPECT_EQ(shard.core().Freeze().status().code(), absl::StatusCode::kFailedPrecondition);
  shard.Load();
  shard.Train(1, gradients);
  const std::vector<float> weights = shard.Read(0, 1);
  auto freeze = shard.core().Freeze();
  ASSERT_TRUE(freeze.ok()) << freeze.status();
  EXPECT_EQ((*freeze)->part().position(), 3u);
  EXPECT_EQ((*freeze)->facts().promised.counter(), 1u);
  EXPECT_EQ((*freeze)->facts().newest_generation, 3u);
  EXPECT_EQ((*freeze)->facts().state.applied_step(), 1u);
  Reader first(*std::move(freeze), 1);
  while (!first.done()) first.ReadSome();
  auto again = shard.core().Freeze();
  ASSERT_TRUE(again.ok()) << again.status();
  Reader reader(*std::move(again), 2);
  for (uint64_t step = 2; step <= 4; ++step) shard.Train(step, gradients);
  while (!reader.done()) reader.ReadSome();
  EXPECT_EQ(reader.read(), first.read());
  EXPECT_EQ(reader.read().at({0, "weight"}),
            std::string(reinterpret_cast<const char*>(weights.data()), 24));
}

}  // namespace
}  // namespace kaon::shard
