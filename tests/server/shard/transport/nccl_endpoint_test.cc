#include "server/shard/transport/nccl_endpoint.h"

#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/shard/transport/nccl_endpoint_fixture.h"

namespace kaon::shard {
namespace {

TEST_F(NcclEndpointTest, HandsOverWhatArrivesWithTheAnnouncedDigest) {
  Start();
  const auto opened = Open(0);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->slots(), 2u);
  EXPECT_EQ(opened->slot_bytes(), kSlotBytes);
  NcclWorker worker(*fabric_, *opened);
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    Arrival arrival;
    const uint64_t digest = worker.Send(60, static_cast<int>(sequence));
    ASSERT_TRUE(Receive(opened->session(), sequence, 60, digest, arrival).ok());
    EXPECT_TRUE(arrival.Await().ok());
    EXPECT_EQ(arrival.bytes(), std::vector<std::byte>(60, std::byte(sequence)));
  }
}

TEST_F(NcclEndpointTest, SendsInTheOrderThatItAnnounces) {
  Start();
  const auto pushes = Open(0);
  const auto opened = Open(0, {}, /*pulls=*/true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(endpoint_->num_sessions(), 2u) << "each direction has a session";
  NcclWorker worker(*fabric_, *opened);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    Arrival arrival;
    const auto transfer = Send(opened->session(), 10 * sequence, arrival);
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    EXPECT_EQ(transfer->session(), opened->session());
    EXPECT_EQ(transfer->sequence(), sequence);
    EXPECT_EQ(worker.Receive(10 * sequence), transfer->digest());
    EXPECT_TRUE(arrival.Await().ok());
  }
  EXPECT_EQ(endpoint_->Pairs("gpt2").size(), 1u);
}

TEST_F(NcclEndpointTest, RefusesToSendWhatDoesNotFit) {
  Start();
  const uint64_t pushes = Open(0)->session();
  const auto opened = Open(0, {}, /*pulls=*/true);
  const uint64_t session = opened->session();
  NcclWorker worker(*fabric_, *opened);
  Arrival none;
  EXPECT_EQ(Send(pushes, 60, none).status(),
            absl::UnavailableError("NCCL session 1 is for pushes, expecting pulls"));
  EXPECT_EQ(Receive(session, 1, 60, 0, none),
            absl::UnavailableError("NCCL session 2 is for pulls, expecting pushes"));
  EXPECT_EQ(Send(session, 60, none, /*rank=*/1).status(),
            absl::UnavailableError("NCCL session 2 is not of rank 1"));
  EXPECT_EQ(Send(session, 65, none).status(),
            absl::InvalidArgumentError("NCCL transfer of 65 bytes, expecting 1 .. 64"));
  Arrival arrivals[2];
  for (Arrival& arrival : arrivals) ASSERT_TRUE(Send(session, 60, arrival).ok());
  EXPECT_EQ(Send(session, 60, none).status(),
            absl::ResourceExhaustedError("NCCL session 2: all 2 slots are in use"));
  endpoint_->Fail(session, "given up");
  for (Arrival& arrival : arrivals) {
    EXPECT_EQ(arrival.Await(), absl::UnavailableError("NCCL: given up"));
  }
}

TEST_F(NcclEndpointTest, TellsWhatEachWorkerSent) {
  Start();
  EXPECT_TRUE(endpoint_->Pairs("gpt2").empty());
  std::list<NcclWorker> workers;
  OpenAndUse(1, workers);
  const auto second = OpenAndUse(0, workers);
  EXPECT_TRUE(endpoint_->Pairs("other").empty());
  std::vector<v1::NcclPair> pairs = endpoint_->Pairs("gpt2");
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].ShortDebugString(),
            "session: 2 state: \"ready\" sessions: 1 transfers: 1 bytes: 60");
  EXPECT_EQ(pairs[1].rank(), 1u);
  endpoint_->Fail(second.session(), "for the test");
  AwaitSessions(1);
  EXPECT_EQ(endpoint_->Pairs("gpt2")[0].ShortDebugString(),
            "session: 2 state: \"ended\" sessions: 1 transfers: 1 bytes: 60 aborts: 1");
}

TEST_F(NcclEndpointTest, RefusesBytesWithAnotherDigest) {
  Start();
  fabric_->SetFaults({.corrupt_at = 1});
  const auto opened = Open(0);
  NcclWorker worker(*fabric_, *opened);
  Arrival arrival;
  const uint64_t digest = worker.Send(60, 7);
  ASSERT_TRUE(Receive(opened->session(), 1, 60, digest, arrival).ok());
  const absl::Status status = arrival.Await();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("NCCL session 1: transfer 1 arrived with digest "),
            std::string::npos)
      << status;
}

TEST_F(NcclEndpointTest, RefusesAnnouncementsThatDoNotFit) {
  Start();
  const auto opened = Open(0);
  NcclWorker worker(*fabric_, *opened);
  const uint64_t session = opened->session();
  Arrival arrival;
  EXPECT_EQ(Receive(session + 1, 1, 60, 0, arrival),
            absl::UnavailableError("NCCL session 2 is over"));
  EXPECT_EQ(Receive(session, 1, 60, 0, arrival, /*rank=*/1),
            absl::UnavailableError("NCCL session 1 is not of rank 1"));
  EXPECT_EQ(Receive(session, 2, 60, 0, arrival),
            absl::InvalidArgumentError("NCCL session 1: transfer 2 announced, expecting 1"));
  EXPECT_EQ(Receive(session, 1, 0, 0, arrival),
            absl::InvalidArgumentError("NCCL transfer of 0 bytes, expecting 1 .. 64"));
  EXPECT_EQ(Receive(session, 1, 65, 0, arrival),
            absl::InvalidArgumentError("NCCL transfer of 65 bytes, expecting 1 .. 64"));
  // None of these posted a receive.
  EXPECT_TRUE(Receive(session, 1, 60, worker.Send(60, 1), arrival).ok());
  EXPECT_TRUE(arrival.Await().ok());
}

TEST_F(NcclEndpointTest, HasNoMoreTransfersUnderWayThanSlots) {
  Start();
  const auto opened = Open(0);
  NcclWorker worker(*fabric_, *opened);
  Arrival arrivals[3];
  EXPECT_TRUE(Receive(opened->session(), 1, 60, 0, arrivals[0]).ok());
  EXPECT_TRUE(Receive(opened->session(), 2, 60, 0, arrivals[1]).ok());
  EXPECT_EQ(Receive(opened->session(), 3, 60, 0, arrivals[2]),
            absl::ResourceExhaustedError("NCCL session 1: all 2 slots are in use"));
  endpoint_->Stop();
  EXPECT_EQ(arrivals[0].Await(), absl::UnavailableError("NCCL: the shard stops"));
  EXPECT_EQ(arrivals[1].Await(), absl::UnavailableError("NCCL: the shard stops"));
}

TEST_F(NcclEndpointTest, EndsASessionWhoseTransferDoesNotArriveAndKeepsTheOthers) {
  Start(absl::Milliseconds(300));
  const auto silent = Open(0);
  const auto other = Open(1);
  NcclWorker silent_worker(*fabric_, *silent);
  NcclWorker worker(*fabric_, *other);
  Arrival never;
  ASSERT_TRUE(Receive(silent->session(), 1, 60, 0, never).ok());
  EXPECT_TRUE(absl::IsUnavailable(never.Await()));
  AwaitSessions(1);
  Arrival arrival;
  ASSERT_TRUE(Receive(other->session(), 1, 60, worker.Send(60, 1), arrival, 1).ok());
  EXPECT_TRUE(arrival.Await().ok());
}

TEST_F(NcclEndpointTest, ASlotIsNotFreeBeforeTheAbortHasReturned) {
  Start();
  const auto opened = Open(0);
  NcclWorker worker(*fabric_, *opened);
  Arrival arrival;
  ASSERT_TRUE(Receive(opened->session(), 1, 60, 0, arrival).ok());
  const uint64_t allocations = fabric_->counts().allocations;
  fabric_->SetFaults({.abort_hangs = true});
  endpoint_->Fail(opened->session(), "given up");
  EXPECT_EQ(arrival.Await(), absl::UnavailableError("NCCL: given up"));
  fabric_->AwaitAbort();
  EXPECT_EQ(endpoint_->num_sessions(), 1u);
  EXPECT_EQ(fabric_->counts().allocations, allocations);
  fabric_->ReleaseAborts();
  AwaitSessions(0);
  // The queue still holds the session for a moment after it has reported the abort.
  while (fabric_->counts().allocations == allocations) std::this_thread::yield();
}

TEST_F(NcclEndpointTest, ANewSessionEndsTheEarlierOneOfItsWorker) {
  Start();
  const auto first = Open(0);
  NcclWorker worker(*fabric_, *first);
  Arrival arrival;
  ASSERT_TRUE(Receive(first->session(), 1, 60, 0, arrival).ok());
  const auto second = Open(0);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->unique_id(), first->unique_id());
  EXPECT_EQ(arrival.Await(), absl::UnavailableError("NCCL: the worker opened another session"));
}

TEST_F(NcclEndpointTest, AnIdleSessionWhoseReceiveIsRefusedEnds) {
  Start();
  std::list<NcclWorker> workers;
  // In most rounds, the endpoint's thread sleeps and learns of it from Receive alone.
  for (int i = 0; i < 10; ++i) {
    const auto opened = OpenAndUse(0, workers);
    for (int turns = 0; turns < 1000; ++turns) std::this_thread::yield();
    fabric_->KillRank(1);
    Arrival arrival;
    EXPECT_TRUE(absl::IsUnavailable(Receive(opened.session(), 2, 60, 0, arrival)));
    AwaitSessions(0);
  }
}

TEST_F(NcclEndpointTest, AnIdleSessionEndsEvenIfTheNextOneDoesNotBegin) {
  Start();
  std::list<NcclWorker> workers;
  OpenAndUse(0, workers);
  fabric_->SetFaults({.init = absl::UnavailableError("no link")});
  EXPECT_EQ(Open(0).status(), absl::UnavailableError("no link"));
  AwaitSessions(0);
}

TEST_F(NcclEndpointTest, BoundsTheSessionsOfARankAndOfAll) {
  Start();
  fabric_->SetFaults({.abort_hangs = true});
  ASSERT_TRUE(Open(0).ok());
  ASSERT_TRUE(Open(0).ok());
  EXPECT_EQ(Open(0).status(),
            absl::ResourceExhaustedError("rank 0 has 2 NCCL sessions, at most 2: an earlier one is "
                                         "still being aborted"));
  ASSERT_TRUE(Open(1).ok());
  ASSERT_TRUE(Open(2).ok());
  EXPECT_EQ(Open(3).status(), absl::ResourceExhaustedError("all 4 NCCL sessions are in use"));
  fabric_->ReleaseAborts();
}

TEST_F(NcclEndpointTest, MakesAnIdOnlyForASessionThatBegins) {
  Start();
  fabric_->SetFaults({.memory = absl::ResourceExhaustedError("the device is full")});
  EXPECT_EQ(Open(0).status(), absl::ResourceExhaustedError("the device is full"));
  EXPECT_EQ(fabric_->counts().ids, 0u);
}

TEST_F(NcclEndpointTest, AWorkerThatDoesNotJoinGetsNoFurtherSessionForAWhile) {
  Start();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Open(0).ok());
    AwaitSessions(1);
  }
  const absl::Status status = Open(0).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(status.message(),
            "rank 0 did not join its last 2 NCCL sessions: the next one is in 10s");
  // Other ranks are not concerned, and joining ends it.
  const auto opened = Open(1);
  ASSERT_TRUE(opened.ok()) << opened.status();
}

TEST_F(NcclEndpointTest, ASessionThatIsJoinedStartsTheCountAnew) {
  Start();
  for (int i = 0; i < 6; ++i) {
    const auto opened = Open(0);
    ASSERT_TRUE(opened.ok()) << opened.status();
    if (i % 2 == 0) {
      AwaitSessions(1);
      continue;
    }
    NcclWorker worker(*fabric_, *opened);
    Arrival arrival;
    ASSERT_TRUE(Receive(opened->session(), 1, 60, worker.Send(60, 1), arrival).ok());
    EXPECT_TRUE(arrival.Await().ok());
    endpoint_->Fail(opened->session(), "the test ends it");
    AwaitSessions(0);
  }
}

TEST_F(NcclEndpointTest, BoundsTheSessionsThatNobodyJoined) {
  NcclEndpoint::Options options = OptionsOf(absl::Minutes(1));
  options.unjoined_delay = absl::ZeroDuration();
  options.max_unjoined = 2;
  endpoint_ = std::make_unique<NcclEndpoint>(fabric_->NewLink(), options);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Open(0).ok());
    AwaitSessions(1);
  }
  EXPECT_EQ(Open(1).status(),
            absl::ResourceExhaustedError("2 NCCL sessions were not joined, at most 2: each keeps a "
                                         "thread and a socket until this shard is restarted"));
}

TEST_F(NcclEndpointTest, TheLongestIdleSessionEndsWhenAnotherWorkerNeedsRoom) {
  NcclEndpoint::Options options = OptionsOf(absl::Minutes(1));
  options.max_sessions = 2;
  options.min_idle = absl::ZeroDuration();
  endpoint_ = std::make_unique<NcclEndpoint>(fabric_->NewLink(), options);
  std::list<NcclWorker> workers;
  const auto first = OpenAndUse(0, workers);
  const auto second = OpenAndUse(1, workers);
  EXPECT_EQ(Open(2).status(), absl::ResourceExhaustedError("all 2 NCCL sessions are in use"));
  AwaitSessions(1);
  EXPECT_TRUE(Open(2).ok());
  Arrival arrival;
  EXPECT_EQ(Receive(first.session(), 2, 60, 0, arrival),
            absl::UnavailableError("NCCL session 1 is over"));
  EXPECT_TRUE(Receive(second.session(), 2, 60, workers.back().Send(60, 2), arrival, 1).ok());
  EXPECT_TRUE(arrival.Await().ok());
}

TEST_F(NcclEndpointTest, ASessionThatIsInUseStaysWhenAnotherWorkerNeedsRoom) {
  NcclEndpoint::Options options = OptionsOf(absl::Minutes(1));
  options.max_sessions = 1;
  options.min_idle = absl::ZeroDuration();
  endpoint_ = std::make_unique<NcclEndpoint>(fabric_->NewLink(), options);
  std::list<NcclWorker> workers;
  const auto first = OpenAndUse(0, workers);
  Arrival arrival;
  EXPECT_TRUE(Receive(first.session(), 2, 60, 0, arrival).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Open(1).status()));
  endpoint_->Stop();
  EXPECT_EQ(arrival.Await(), absl::UnavailableError("NCCL: the shard stops"));
}

TEST_F(NcclEndpointTest, RefusesCertificatesOfOthersAndWorkersOfAStoppedShard) {
  Start();
  proto::Identity reader = *proto::ParseIdentity("spiffe://lab/kaon/reader/gpt2");
  EXPECT_TRUE(absl::IsPermissionDenied(Open(0, reader).status()));
  proto::Identity other = *proto::ParseIdentity("spiffe://lab/kaon/worker/gpt2/1");
  EXPECT_TRUE(absl::IsPermissionDenied(Open(0, other).status()));
  EXPECT_TRUE(Open(1, other).ok());
  endpoint_->Stop();
  EXPECT_EQ(Open(0).status(), absl::UnavailableError("the shard stops"));
}

}  // namespace
}  // namespace kaon::shard
