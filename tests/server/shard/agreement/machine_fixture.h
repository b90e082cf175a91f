// A ShardMachine whose actions a test carries out, with a journal that is as slow as the test
// wants. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_AGREEMENT_MACHINE_FIXTURE_H_
#define KAON_TESTS_SERVER_SHARD_AGREEMENT_MACHINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/shard/agreement/shard_machine.h"
#include "tests/server/shard/agreement/plans.h"

namespace kaon::shard {

inline constexpr StreamId kOld = 1;
inline constexpr StreamId kHolder = 2;

// Carries out the machine's actions as a shard with a slow journal.
class MachineFixture : public testing::Test {
 protected:
  explicit MachineFixture(std::string data_loss = "") : machine_(std::move(data_loss)) {}
  // Creates a machine in mode INTERVAL.
  explicit MachineFixture(uint32_t interval_steps)
      : machine_("", v1::DURABILITY_MODE_INTERVAL, interval_steps) {}

  v1::CoordinatorToShard Envelope(uint64_t counter) {
    v1::CoordinatorToShard message;
    *message.mutable_ballot() = MakeBallot(counter);
    message.set_holder_address("coordinator:" + std::to_string(counter));
    message.set_shard(0);
    message.set_num_shards(1);
    return message;
  }
  void Deliver(StreamId stream, const v1::CoordinatorToShard& message) {
    machine_.OnControl(stream, message, now_);
    Collect();
  }
  void Promise(StreamId stream, uint64_t counter) {
    v1::CoordinatorToShard message = Envelope(counter);
    message.mutable_promise();
    Deliver(stream, message);
  }
  void Plan(StreamId stream, const v1::StepPlan& plan) {
    v1::CoordinatorToShard message = Envelope(plan.ballot().counter());
    *message.mutable_plan() = plan;
    Deliver(stream, message);
  }
  void Decide(StreamId stream, uint64_t counter, const v1::StepRecord& record) {
    v1::CoordinatorToShard message = Envelope(counter);
    *message.mutable_decision() = record;
    Deliver(stream, message);
  }
  void Heartbeat(StreamId stream, uint64_t counter) {
    v1::CoordinatorToShard message = Envelope(counter);
    message.mutable_heartbeat();
    Deliver(stream, message);
  }
  void Probe(StreamId stream) {
    v1::CoordinatorToShard message = Envelope(0);
    message.mutable_probe();
    Deliver(stream, message);
  }
  // Completes every append so far, in order.
  void MakeDurable() {
    for (uint64_t token : std::exchange(appends_, {})) machine_.OnDurable(token);
    Collect();
  }
  void Fold() {
    v1::Prepared facts;
    facts.set_gradient_digest(77);
    machine_.OnFolded(generation_, facts);
    Collect();
  }
  // `state_digest` is that of the state after the entry.
  void Apply(uint64_t position, uint64_t state_digest = 0) {
    machine_.OnApplied(position, state_digest);
    Collect();
  }
  void Collect() {
    for (ShardAction& action : machine_.TakeActions()) {
      if (auto* send = std::get_if<SendToCoordinator>(&action)) sent_.push_back(*send);
      if (auto* append = std::get_if<AppendJournal>(&action)) {
        appends_.push_back(append->token);
        records_.push_back(append->record);
      }
      if (auto* begin = std::get_if<BeginFolding>(&action)) {
        generation_ = begin->generation;
        ++foldings_;
      }
      if (auto* reserve = std::get_if<ReserveJob>(&action)) generation_ = reserve->generation;
      if (std::holds_alternative<RestampPlan>(action)) ++restamps_;
      if (auto* apply = std::get_if<ApplyRecord>(&action)) applies_.push_back(apply->record);
      if (auto* end = std::get_if<EndStream>(&action)) ended_.push_back(*end);
    }
  }
  std::vector<SendToCoordinator> TakeSent() { return std::exchange(sent_, {}); }
  v1::StepPlan PlanOf(const v1::Prepared& prepared) {
    v1::StepPlan plan;
    EXPECT_TRUE(plan.ParseFromString(prepared.plan()));
    return plan;
  }

  // Registers the job, loads the weights, and gives ballot 1 to `kHolder`.
  void Start() {
    Promise(kHolder, 1);
    MakeDurable();
    Plan(kHolder, RegistrationPlan(1, 1));
    machine_.OnReserved(generation_, absl::OkStatus());
    Collect();
    MakeDurable();
    Decide(kHolder, 1, Applying(RegistrationPlan(1, 1)));
    Apply(1);
    Plan(kHolder, LoadPlan(1, 1));
    Fold();
    MakeDurable();
    Decide(kHolder, 1, Applying(LoadPlan(1, 1)));
    Apply(2);
    MakeDurable();
    TakeSent();
    foldings_ = 0;
    applies_.clear();
    records_.clear();
  }
  // Calls Start and makes a PREPARE of `plan` durable.
  void StartPrepared(const v1::StepPlan& plan) {
    Start();
    Plan(kHolder, plan);
    Fold();
    MakeDurable();
    TakeSent();
    foldings_ = 0;
  }

  ShardMachine machine_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<SendToCoordinator> sent_;
  std::vector<EndStream> ended_;
  std::vector<uint64_t> appends_;
  std::vector<journal::Record> records_;
  std::vector<v1::StepRecord> applies_;
  uint64_t generation_ = 0;
  int foldings_ = 0;
  int restamps_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_AGREEMENT_MACHINE_FIXTURE_H_
