// An endpoint over a fake fabric, and workers at the other ends. Its tests share this. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_TRANSPORT_NCCL_ENDPOINT_FIXTURE_H_
#define KAON_TESTS_SERVER_SHARD_TRANSPORT_NCCL_ENDPOINT_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/mutex.h"
#include "kernels/nccl/link_session.h"
#include "kernels/region.h"
#include "kernels/steady_clock.h"
#include "server/shard/transport/nccl_endpoint.h"
#include "tests/testing/fake_link.h"

namespace kaon::shard {

inline constexpr uint64_t kSlotBytes = 64;

// The other rank of a session.
class NcclWorker {
 public:
  NcclWorker(kernels::FakeFabric& fabric, const v1::OpenNcclSessionResponse& opened)
      : link_(fabric.NewLink()), memory_(*link_->Allocate(kSlotBytes)), session_(*link_, {}) {
    kernels::UniqueId id;
    EXPECT_EQ(opened.unique_id().size(), id.size());
    std::memcpy(id.data(), opened.unique_id().data(), id.size());
    EXPECT_TRUE(session_.Start(id, 1, SteadyNow()).ok());
  }
  ~NcclWorker() {
    EXPECT_TRUE(link_->Abort({session_.comm()}).ok());
    link_->Free(memory_);
  }

  // Receives so many bytes, and returns their digest.
  uint64_t Receive(uint64_t bytes) {
    Join();
    EXPECT_TRUE(session_.Receive(0, memory_.Sub(0, bytes), SteadyNow()).ok());
    while (session_.num_under_way() > 0) session_.Advance(SteadyNow());
    return link_->Digest(3, memory_.Sub(0, bytes));
  }
  // Sends `bytes` bytes of this value. Returns their digest.
  uint64_t Send(uint64_t bytes, int value) {
    Join();
    std::memset(memory_.data(), value, bytes);
    EXPECT_TRUE(session_.Send(0, memory_.Sub(0, bytes), SteadyNow()).ok());
    return link_->Digest(3, memory_.Sub(0, bytes));
  }

 private:
  void Join() {
    while (session_.state() == kernels::LinkSession::State::kConnecting) {
      session_.Advance(SteadyNow());
    }
  }

  const std::shared_ptr<kernels::DeviceLink> link_;
  const kernels::Region memory_;
  kernels::LinkSession session_;
};

// Takes what an endpoint says of one transfer.
class Arrival {
 public:
  // Fake devices have their memory on the heap.
  NcclEndpoint::Take Take() {
    return [this](kernels::ConstRegion payload) {
      MutexLock lock(mu_);
      space_ = payload.space();
      bytes_.assign(payload.data(), payload.data() + payload.size());
      return absl::OkStatus();
    };
  }
  NcclEndpoint::Done Done() {
    return [this](const absl::Status& status) {
      MutexLock lock(mu_);
      status_ = status;
      changed_.NotifyAll();
    };
  }
  absl::Status Await() {
    MutexLock lock(mu_);
    while (!status_.has_value()) changed_.Wait(mu_);
    return *status_;
  }
  std::vector<std::byte> bytes() {
    MutexLock lock(mu_);
    return bytes_;
  }
  kernels::Space space() {
    MutexLock lock(mu_);
    return space_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
  std::vector<std::byte> bytes_ ABSL_GUARDED_BY(mu_);
  kernels::Space space_ ABSL_GUARDED_BY(mu_) = kernels::Space::kHost;
};

class NcclEndpointTest : public testing::Test {
 protected:
  static NcclEndpoint::Options OptionsOf(absl::Duration timeout) {
    NcclEndpoint::Options options;
    options.max_sessions = 4;
    options.slots = 2;
    options.slot_bytes = kSlotBytes;
    options.session.transfer_timeout = timeout;
    options.session.revoke_timeout = absl::Milliseconds(10);
    return options;
  }
  void Start(absl::Duration timeout = absl::Minutes(1)) {
    endpoint_ = std::make_unique<NcclEndpoint>(fabric_->NewLink(), OptionsOf(timeout));
  }
  absl::StatusOr<v1::OpenNcclSessionResponse> Open(uint32_t rank, const proto::Identity& peer = {},
                                                   bool pulls = false) {
    v1::OpenNcclSessionRequest request;
    request.set_pulls(pulls);
    request.set_job("gpt2");
    request.set_rank(rank);
    return endpoint_->Open(peer, request);
  }
  absl::Status Receive(uint64_t session, uint64_t sequence, uint64_t bytes, uint64_t digest,
                       Arrival& arrival, uint32_t rank = 0) {
    NcclEndpoint::Announced announced;
    announced.transfer.set_session(session);
    announced.transfer.set_sequence(sequence);
    announced.transfer.set_digest(digest);
    announced.parameter_id = 3;
    announced.bytes = bytes;
    return endpoint_->Receive({"gpt2", rank}, announced, arrival.Take(), arrival.Done());
  }
  absl::StatusOr<v1::NcclTransfer> Send(uint64_t session, size_t bytes, Arrival& arrival,
                                        uint32_t rank = 0) {
    const auto write = [&](kernels::Region to) {
      written_to_ = to.space();
      std::memset(to.data(), 8, to.size());
      return absl::OkStatus();
    };
    return endpoint_->Send({"gpt2", rank}, session, 3, bytes, write, arrival.Done());
  }
  // Returns a session that has carried one transfer and is idle.
  v1::OpenNcclSessionResponse OpenAndUse(uint32_t rank, std::list<NcclWorker>& workers) {
    const auto opened = Open(rank);
    EXPECT_TRUE(opened.ok()) << opened.status();
    NcclWorker& worker = workers.emplace_back(*fabric_, *opened);
    Arrival arrival;
    EXPECT_TRUE(Receive(opened->session(), 1, 60, worker.Send(60, 1), arrival, rank).ok());
    EXPECT_TRUE(arrival.Await().ok());
    return *opened;
  }
  // Ends a session and waits until it is forgotten.
  void AwaitSessions(size_t sessions) {
    while (endpoint_->num_sessions() != sessions) std::this_thread::yield();
  }

  const std::shared_ptr<kernels::FakeFabric> fabric_ = std::make_shared<kernels::FakeFabric>();
  std::unique_ptr<NcclEndpoint> endpoint_;
  // Space that the last Send wrote its payload to.
  kernels::Space written_to_ = kernels::Space::kHost;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_TRANSPORT_NCCL_ENDPOINT_FIXTURE_H_
