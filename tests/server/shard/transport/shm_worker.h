// A worker at the other end of a shard's shared-memory session, honest or not. Writes any bytes to
// any place that the test wants. One thread, except functions that say otherwise.
#ifndef KAON_TESTS_SERVER_SHARD_TRANSPORT_SHM_WORKER_H_
#define KAON_TESTS_SERVER_SHARD_TRANSPORT_SHM_WORKER_H_

#include <grpcpp/channel.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/shard_local.pb.h"
#include "proto/descriptor.h"
#include "proto/shm_link.h"
#include "proto/shm_region.h"
#include "proto/shm_ring.h"

namespace kaon::shard {

class ShmWorker {
 public:
  // Requests a session from the shard at the other end of `channel` until there is room for one.
  // CHECKs that the shard grants it.
  static std::unique_ptr<ShmWorker> Connect(const std::shared_ptr<grpc::Channel>& channel);
  // CHECKs that the shard accepts the token.
  explicit ShmWorker(const v1::OpenSessionResponse& opened);

  // Writes a record and rings.
  void Send(proto::ShmRecord kind, uint32_t call, const std::string& body);
  // Reserve waits for room for a body. Commit sends the bytes that are there by then.
  std::byte* Reserve(size_t size);
  void Commit(proto::ShmRecord kind, uint32_t call, size_t size);
  void Ring();
  // Next message of the shard; a record of kind 0 if it has ended the session.
  struct Record {
    proto::RingHeader header;
    std::string body;
  };
  Record Receive();

  // Makes one call: writes the requests, then reads to its end. Returns its status and the answers.
  absl::Status Push(const std::vector<v1::PushRequest>& requests,
                    std::vector<v1::PushResponse>* responses = nullptr);
  absl::Status Pull(const v1::PullRequest& request,
                    std::vector<v1::PullResponse>* responses = nullptr);
  // Writes empty records of `call` as fast as the shard accepts them, until it closes the
  // connection.
  void Flood(proto::ShmRecord kind, uint32_t call);
  // Waits until the shard has closed the connection, and reads its messages before that.
  bool IsEnded();
  // Waits likewise without reading.
  void AwaitClosed() {
    while (AwaitRing()) {
    }
  }
  // Closes the connection without a message.
  void Die() { socket_ = proto::Descriptor(); }

  // Any thread may write these rings, as a malicious worker does.
  proto::RingMemory requests() const { return region_->requests(); }
  proto::RingMemory responses() const { return region_->responses(); }
  uint32_t next_call() { return ++call_; }
  // Returns the newest call.
  uint32_t call() const { return call_; }
  const proto::Descriptor& socket() const { return socket_; }

 private:
  // Returns false if the connection is closed.
  bool AwaitRing();
  template <typename Response>
  absl::Status TakeAnswers(uint32_t call, std::vector<Response>* responses,
                           const std::function<bool(const Response&)>& is_last);

  proto::Descriptor socket_;
  std::unique_ptr<proto::ShmRegion> region_;
  std::unique_ptr<proto::RingWriter> writer_;
  std::unique_ptr<proto::RingReader> reader_;
  uint32_t call_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_TRANSPORT_SHM_WORKER_H_
