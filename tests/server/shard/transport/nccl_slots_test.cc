// The slots of an endpoint: where payloads lie, and who has a slot when.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/shard/transport/nccl_endpoint_fixture.h"

namespace kaon::shard {
namespace {

class NcclSlotsTest : public NcclEndpointTest {};

TEST_F(NcclSlotsTest, NothingPassesThroughTheHostIfTheShardComputesWhereItArrives) {
  for (const bool in_place : {true, false}) {
    NcclEndpoint::Options options = OptionsOf(absl::Minutes(1));
    options.in_place = in_place;
    endpoint_ = std::make_unique<NcclEndpoint>(fabric_->NewLink(), options);
    const uint64_t before = fabric_->counts().host_copies;
    const auto pushes = Open(0);
    const auto pulls = Open(0, {}, /*pulls=*/true);
    NcclWorker sender(*fabric_, *pushes);
    NcclWorker receiver(*fabric_, *pulls);
    Arrival received;
    ASSERT_TRUE(Receive(pushes->session(), 1, 60, sender.Send(60, 7), received).ok());
    EXPECT_TRUE(received.Await().ok());
    EXPECT_EQ(received.bytes(), std::vector<std::byte>(60, std::byte{7}));
    Arrival sent;
    const auto transfer = Send(pulls->session(), 44, sent);
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    EXPECT_EQ(receiver.Receive(44), transfer->digest());
    EXPECT_TRUE(sent.Await().ok());
    const kernels::Space expected = in_place ? kernels::Space::kDevice : kernels::Space::kHost;
    EXPECT_EQ(received.space(), expected);
    EXPECT_EQ(written_to_, expected);
    EXPECT_EQ(fabric_->counts().host_copies - before, in_place ? 0u : 2u);
    endpoint_.reset();
  }
}

TEST_F(NcclSlotsTest, ASlotIsNotFreeBeforeItIsTaken) {
  NcclEndpoint::Options options = OptionsOf(absl::Minutes(1));
  options.in_place = true;
  options.slots = 1;
  endpoint_ = std::make_unique<NcclEndpoint>(fabric_->NewLink(), options);
  const auto opened = Open(0);
  NcclWorker worker(*fabric_, *opened);
  NcclEndpoint::Announced announced;
  announced.transfer.set_session(opened->session());
  announced.transfer.set_sequence(1);
  announced.parameter_id = 3;
  announced.bytes = 60;
  announced.transfer.set_digest(worker.Send(60, 1));
  Arrival arrival;
  Arrival none;
  const auto take = [&](kernels::ConstRegion) {
    return Receive(opened->session(), 2, 60, 0, none);
  };
  ASSERT_TRUE(endpoint_->Receive({"gpt2", 0}, announced, take, arrival.Done()).ok());
  // The status of `take` ends the transfer.
  EXPECT_EQ(arrival.Await(),
            absl::ResourceExhaustedError("NCCL session 1: all 1 slots are in use"));
  Arrival next;
  EXPECT_TRUE(Receive(opened->session(), 2, 60, worker.Send(60, 2), next).ok());
  EXPECT_TRUE(next.Await().ok());
}

TEST_F(NcclSlotsTest, ASlotIsFreeAgainIfItsPayloadIsNotWritten) {
  Start();
  const auto opened = Open(0, {}, /*pulls=*/true);
  NcclWorker worker(*fabric_, *opened);
  Arrival none;
  const auto write = [](kernels::Region) { return absl::FailedPreconditionError("gone"); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(endpoint_->Send({"gpt2", 0}, opened->session(), 3, 60, write, none.Done()).status(),
              absl::FailedPreconditionError("gone"));
  }
  Arrival arrival;
  EXPECT_EQ(Send(opened->session(), 60, arrival)->sequence(), 1u);
  worker.Receive(60);
  EXPECT_TRUE(arrival.Await().ok());
}

}  // namespace
}  // namespace kaon::shard
