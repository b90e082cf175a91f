// A certified worker sends wrong headers and payloads over NCCL. The shard names what is wrong, and
// keeps no slot for it. Honest workers then finish the step with the bits of their gradients.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "kernels/reduce/digest.h"
#include "kernels/steady_clock.h"
#include "server/shard/gradients/push_intake.h"
#include "tests/server/shard/transport/nccl_push_fixture.h"

namespace kaon::shard {
namespace {

using Code = grpc::StatusCode;

const std::vector<float> kW = {1, 2, 3, 4, 5, 6};
// Values of parameter b from each rank.
constexpr float kOfRank[] = {2, 4};

// A push of rank 0 in step 1: open, w over gRPC, header and finish. A row makes it wrong.
struct Attack {
  v1::PushRequest open;
  bool has_w = true;
  // Announces b as the next transfer.
  v1::PushRequest header;
  // Bytes that are sent for `header`; 0: none, since no receive awaits them.
  uint64_t sent_bytes = 0;
  bool header_is_last = false;
  // The rank opens another session first.
  bool has_newer_session = false;
};

struct Row {
  std::string name;
  Code code;
  std::string words;
  void (*spoil)(Attack& attack);
  // A transfer was posted, so the ends may disagree about what is under way.
  bool ends_session = false;
  // A right transfer of b comes first.
  bool is_second = false;
};

// The stream is not opened, so the header after that is not looked at.
const Row kOpens[] = {
    {"AnotherAttempt", Code::ABORTED, "of rank 0 pushed, the plan has",
     [](Attack& a) { a.open.mutable_open()->mutable_attempt()->set_number(9); }},
    {"AnotherRound", Code::UNAVAILABLE, " round 2, this shard has accepted ballot ",
     [](Attack& a) {
       *a.open.mutable_open()->mutable_ballot() = MakeBallot(1);
       a.open.mutable_open()->set_round(2);
     }},
    {"AnOlderTimeline", Code::FAILED_PRECONDITION, "timeline 0 pushed, expecting 1",
     [](Attack& a) { a.open.mutable_open()->set_timeline(0); }},
    {"ANewerTimeline", Code::UNAVAILABLE, "timeline 7 pushed, expecting 1",
     [](Attack& a) { a.open.mutable_open()->set_timeline(7); }},
    {"AnOlderStep", Code::FAILED_PRECONDITION, "step 0 pushed, expecting 1",
     [](Attack& a) { a.open.mutable_open()->set_step(0); }},
    {"ANewerStep", Code::UNAVAILABLE, "step 2 pushed, expecting 1",
     [](Attack& a) { a.open.mutable_open()->set_step(2); }},
};

// The header is refused, and no receive is posted.
const Row kHeaders[] = {
    {"AnUnknownParameter", Code::INVALID_ARGUMENT, "parameter_id is 4, expecting 0 .. 3",
     [](Attack& a) { a.header.mutable_chunk()->set_parameter_id(4); }},
    {"AParameterOfAnotherShard", Code::INVALID_ARGUMENT,
     "parameter g is on shard 1, not on this one",
     [](Attack& a) { a.header.mutable_chunk()->set_parameter_id(3); }},
    {"AFrozenParameter", Code::INVALID_ARGUMENT, "parameter f is frozen, it takes no gradient",
     [](Attack& a) { a.header.mutable_chunk()->set_parameter_id(2); }},
    {"AnUnknownDtype", Code::INVALID_ARGUMENT, "parameter b: dtype 9 pushed, expecting 1 (fp32)",
     [](Attack& a) { a.header.mutable_chunk()->set_dtype(static_cast<v1::DType>(9)); }},
    {"NoElements", Code::INVALID_ARGUMENT, "parameter b: num_elements is 0, expecting 1 .. 262144",
     [](Attack& a) { a.header.mutable_chunk()->set_num_elements(0); }},
    {"MoreElementsThanASlotHas", Code::INVALID_ARGUMENT,
     "parameter b: num_elements is 262145, expecting 1 .. 262144",
     [](Attack& a) { a.header.mutable_chunk()->set_num_elements(262145); }},
    {"TooFewElements", Code::INVALID_ARGUMENT,
     "parameter b: payload has 12 bytes, expecting at least 4096",
     [](Attack& a) { a.header.mutable_chunk()->set_num_elements(3); }},
    {"MoreElementsThanTheParameterHas", Code::INVALID_ARGUMENT,
     "parameter b: offset 0 + 5 elements pushed, it has 4",
     [](Attack& a) { a.header.mutable_chunk()->set_num_elements(5); }},
    {"AnOffsetThatOverflows", Code::INVALID_ARGUMENT,
     "parameter b: offset 18446744073709551615 + 4 elements pushed, it has 4",
     [](Attack& a) { a.header.mutable_chunk()->set_offset(~uint64_t{0}); }},
    {"ATransferThatSkipsANumber", Code::INVALID_ARGUMENT, ": transfer 2 announced, expecting 1",
     [](Attack& a) { a.header.mutable_nccl()->set_sequence(2); }},
    {"ASessionThatANewerOneEnded", Code::UNAVAILABLE, "NCCL session 2 is over",
     [](Attack& a) { a.has_newer_session = true; }},
    {"ARepeatedTransfer", Code::INVALID_ARGUMENT, ": transfer 1 announced, expecting 2",
     [](Attack& a) { a.header.mutable_nccl()->set_sequence(1); },
     /*ends_session=*/true, /*is_second=*/true},
    // The push has finished, so nothing more of it is read.
    {"AHeaderAfterTheFinish", Code::OK, "", [](Attack& a) { a.header_is_last = true; },
     /*ends_session=*/false, /*is_second=*/true},
};

// The receive is posted, and what arrives is wrong.
const Row kPayloads[] = {
    {"AnotherMicroBatch", Code::INVALID_ARGUMENT, "parameter b: micro-batch 5 of rank 0 pushed",
     [](Attack& a) {
       a.header.mutable_chunk()->set_micro_batch(5);
       a.sent_bytes = 16;
     },
     /*ends_session=*/true},
    {"AGap", Code::INVALID_ARGUMENT, "gap: elements from 3 pushed, expecting from 0",
     [](Attack& a) {
       a.header.mutable_chunk()->set_offset(3);
       a.header.mutable_chunk()->set_num_elements(1);
       a.sent_bytes = 4;
     },
     /*ends_session=*/true},
    {"AnOverlap", Code::INVALID_ARGUMENT, "overlap: elements 3 .. 4 pushed, elements 0 .. 4",
     [](Attack& a) {
       a.header.mutable_chunk()->set_offset(3);
       a.header.mutable_chunk()->set_num_elements(1);
       a.sent_bytes = 4;
     },
     /*ends_session=*/true, /*is_second=*/true},
    {"ARepeatedChunkOfAnotherDtype", Code::ALREADY_EXISTS,
     "parameter b of rank 0 micro-batch 0: elements from 0 were taken with other bytes",
     [](Attack& a) {
       a.header.mutable_chunk()->set_dtype(v1::DTYPE_BFLOAT16);
       a.sent_bytes = 8;
     },
     /*ends_session=*/true, /*is_second=*/true},
    {"AParameterThatTheFinishLacks", Code::INVALID_ARGUMENT,
     "parameter w of rank 0 micro-batch 0: finished with 0 elements, expecting 6",
     [](Attack& a) {
       a.has_w = false;
       a.sent_bytes = 16;
     },
     /*ends_session=*/true},
    {"AShorterTransfer", Code::UNAVAILABLE, "NCCL: the sizes differ",
     [](Attack& a) { a.sent_bytes = 8; },
     /*ends_session=*/true},
    {"ALongerTransfer", Code::UNAVAILABLE, "NCCL: the sizes differ",
     [](Attack& a) { a.sent_bytes = 32; },
     /*ends_session=*/true},
    {"ADtypeThatIsNotSent", Code::UNAVAILABLE, "NCCL: the sizes differ",
     [](Attack& a) {
       a.header.mutable_chunk()->set_dtype(v1::DTYPE_BFLOAT16);
       a.sent_bytes = 16;
     },
     /*ends_session=*/true},
};

class NcclByzantineTest : public NcclPushTest, public testing::WithParamInterface<Row> {
 protected:
  NcclByzantineTest() : NcclPushTest(/*num_shards=*/2) {}

  grpc::Status PushWrongly(Session& session, Attack attack, bool is_second) {
    std::vector<v1::PushRequest> requests = {attack.open};
    if (attack.has_w) requests.push_back(ChunkRequest(0, kW));
    if (is_second) {
      requests.push_back(Header(session, 1, kOfRank[0]));
      Send(session, 1);
    }
    if (attack.sent_bytes > 0) {
      v1::NcclTransfer& transfer = *attack.header.mutable_nccl();
      const kernels::Region announced =
          session.memory.Sub(16 * transfer.sequence(), PushIntake::PayloadBytes(attack.header));
      transfer.set_digest(link_->Digest(1, announced));
      Send(session, transfer.sequence(), attack.sent_bytes);
    }
    if (!attack.header_is_last) requests.push_back(attack.header);
    requests.push_back(FinishRequest());
    if (attack.header_is_last) requests.push_back(attack.header);
    return Push(requests);
  }
  // Pushes this rank's gradients with b in every slot of the session at once.
  void PushRightly(Session& session, uint32_t rank, uint64_t first) {
    const auto context = WithDeadline();
    const auto stream = data_->Push(context.get());
    stream->Write(OpenRequest(rank, 1));
    stream->Write(ChunkRequest(0, kW));
    const uint64_t before = fabric_->counts().queued;
    for (uint64_t i = 0; i < kSlots; ++i) {
      stream->Write(Header(session, first + i, kOfRank[rank]));
    }
    // Has a deadline, so that a push that is refused fails the test and does not hang.
    const absl::Time limit = SteadyNow() + absl::Seconds(30);
    while (fabric_->counts().queued < before + kSlots && SteadyNow() < limit) {
      std::this_thread::yield();
    }
    for (uint64_t i = 0; i < kSlots; ++i) Send(session, first + i);
    stream->Write(FinishRequest());
    v1::PushResponse response;
    while (stream->Read(&response)) continue;
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.error_message();
  }
  // The fabric's memory is one piece for each end of a session.
  void AwaitSessionsOfShard(size_t sessions) {
    while (fabric_->counts().allocations != sessions_.size() + sessions) std::this_thread::yield();
  }

  static constexpr uint64_t kSlots = 4;
};

TEST_P(NcclByzantineTest, IsRefusedAndHarmsNobody) {
  const Row& row = GetParam();
  PushRightly(OpenSession(1), /*rank=*/1, /*first=*/1);
  Session* session = &OpenSession(0);
  Attack attack;
  attack.open = OpenRequest(0, 1);
  attack.header = Header(*session, row.is_second ? 2 : 1, kOfRank[0]);
  row.spoil(attack);
  Session* const newer = attack.has_newer_session ? &OpenSession(0) : nullptr;
  AwaitSessionsOfShard(2);

  const grpc::Status status = PushWrongly(*session, attack, row.is_second);
  EXPECT_EQ(status.error_code(), row.code) << status.error_message();
  EXPECT_NE(status.error_message().find(row.words), std::string::npos) << status.error_message();

  if (newer != nullptr) session = newer;
  if (row.ends_session) {
    AwaitSessionsOfShard(1);
    session = &OpenSession(0);
  }
  PushRightly(*session, /*rank=*/0, row.is_second && !row.ends_session ? 2 : 1);
  const v1::Prepared prepared = coordinator_->Receive().prepared();
  EXPECT_EQ(prepared.gradient_digest(),
            kernels::TensorDigester(0, kernels::kGradientSlot).Of(kW, 0) +
                kernels::TensorDigester(1, kernels::kGradientSlot).Of({3, 3, 3, 3}, 0));
  EXPECT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).has_applied());
  AwaitSessionsOfShard(2);
}

std::string NameOf(const testing::TestParamInfo<Row>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Opens, NcclByzantineTest, testing::ValuesIn(kOpens), NameOf);
INSTANTIATE_TEST_SUITE_P(Headers, NcclByzantineTest, testing::ValuesIn(kHeaders), NameOf);
INSTANTIATE_TEST_SUITE_P(Payloads, NcclByzantineTest, testing::ValuesIn(kPayloads), NameOf);

}  // namespace
}  // namespace kaon::shard
