// A worker that speaks to the shard's push stream by hand, with sessions of NCCL over a fabric. Its
// tests share this. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_TRANSPORT_NCCL_PUSH_FIXTURE_H_
#define KAON_TESTS_SERVER_SHARD_TRANSPORT_NCCL_PUSH_FIXTURE_H_

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "kaon/v1/shard_nccl.grpc.pb.h"
#include "kernels/nccl/link_session.h"
#include "kernels/region.h"
#include "kernels/steady_clock.h"
#include "tests/server/shard/transport/served_shard.h"
#include "tests/testing/fake_link.h"

namespace kaon::shard {

// A base, since the shard uses the fabric until it ends.
struct Fabric {
  const std::shared_ptr<kernels::FakeFabric> fabric_ = std::make_shared<kernels::FakeFabric>();
};

class NcclPushTest : protected Fabric, public ServedShardTest {
 protected:
  // A session of one rank, whose sends come from one piece of memory.
  struct Session {
    uint64_t number = 0;
    kernels::Region memory;
    std::unique_ptr<kernels::LinkSession> state;
  };

  explicit NcclPushTest(uint32_t num_shards = 1)
      : ServedShardTest(/*shm_sessions=*/0, fabric_->NewLink()) {
    link_ = fabric_->NewLink();
    PlanStepOne(/*b_elements=*/4, /*micro_batches=*/1, num_shards);
  }
  ~NcclPushTest() override {
    for (const Session& session : sessions_) {
      EXPECT_TRUE(link_->Abort({session.state->comm()}).ok());
      link_->Free(session.memory);
    }
  }

  Session& OpenSession(uint32_t rank) {
    v1::OpenNcclSessionRequest request;
    request.set_job("gpt2");
    request.set_rank(rank);
    v1::OpenNcclSessionResponse opened;
    grpc::Status status;
    do {
      // The aborts of earlier sessions may take a while.
      status =
          v1::ShardNccl::NewStub(channel_)->OpenSession(WithDeadline().get(), request, &opened);
    } while (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_TRUE(status.ok()) << status.error_message();
    kernels::UniqueId id;
    std::memcpy(id.data(), opened.unique_id().data(), id.size());
    Session session;
    session.number = opened.session();
    session.memory = *link_->Allocate(4096);
    session.state = std::make_unique<kernels::LinkSession>(*link_, kernels::LinkSession::Options());
    EXPECT_TRUE(session.state->Start(id, 1, SteadyNow()).ok());
    sessions_.push_back(std::move(session));
    return sessions_.back();
  }
  // Header of parameter b, 4 elements of this value, as micro-batch `micro_batch`.
  v1::PushRequest Header(const Session& session, uint64_t sequence, float value,
                         uint32_t micro_batch = 0) {
    const std::vector<float> values(4, value);
    v1::PushRequest request = ChunkRequest(1, values);
    request.clear_payload();
    request.mutable_chunk()->clear_crc32c();
    request.mutable_chunk()->set_micro_batch(micro_batch);
    request.mutable_nccl()->set_session(session.number);
    request.mutable_nccl()->set_sequence(sequence);
    std::memcpy(session.memory.data() + 16 * sequence, values.data(), 16);
    request.mutable_nccl()->set_digest(link_->Digest(1, session.memory.Sub(16 * sequence, 16)));
    return request;
  }
  void Send(Session& session, uint64_t sequence, uint64_t bytes = 16) {
    while (session.state->state() == kernels::LinkSession::State::kConnecting) {
      session.state->Advance(SteadyNow());
    }
    ASSERT_TRUE(
        session.state->Send(sequence, session.memory.Sub(16 * sequence, bytes), SteadyNow()).ok());
  }

  std::shared_ptr<kernels::DeviceLink> link_;
  // A list: its elements stay where they are.
  std::list<Session> sessions_;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_TRANSPORT_NCCL_PUSH_FIXTURE_H_
