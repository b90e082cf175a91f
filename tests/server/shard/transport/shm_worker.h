// A worker at the other end of a shard's session over shared memory, honest or not: it writes what
// the test says where the test says. One thread, but for what is said to be for others.
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
  // Asks the shard at the other end of `channel` for a session until there is room for one; CHECKs
  // that it gets it.
  static std::unique_ptr<ShmWorker> Connect(const std::shared_ptr<grpc::Channel>& channel);
  // CHECKs that the shard takes the token.
  explicit ShmWorker(const v1::OpenSessionResponse& opened);

  // Writes a record and rings.
  void Send(proto::ShmRecord kind, uint32_t call, const std::string& body);
  // The same in two: waits for room for a body, and sends what lies there then.
  std::byte* Reserve(size_t size);
  void Commit(proto::ShmRecord kind, uint32_t call, size_t size);
  void Ring();
  // What the shard says next; a record of kind 0 if it has ended the session.
  struct Record {
    proto::RingHeader header;
    std::string body;
  };
  Record Receive();

  // As one call: writes the requests, then reads to its end; how it ended, and what was answered.
  absl::Status Push(const std::vector<v1::PushRequest>& requests,
                    std::vector<v1::PushResponse>* responses = nullptr);
  absl::Status Pull(const v1::PullRequest& request,
                    std::vector<v1::PullResponse>* responses = nullptr);
  // Writes empty records of `call` as fast as the shard takes them, until it closes the connection.
  void Flood(proto::ShmRecord kind, uint32_t call);
  // Waits until the shard has closed the connection, and reads what it said before.
  bool IsEnded();
  // The same without reading.
  void AwaitClosed() {
    while (AwaitRing()) {
    }
  }
  // Ends without a word.
  void Die() { socket_ = proto::Descriptor(); }

  // May be written by any thread, as it is by a worker that means harm.
  proto::RingMemory requests() const { return region_->requests(); }
  proto::RingMemory responses() const { return region_->responses(); }
  uint32_t next_call() { return ++call_; }
  // The newest.
  uint32_t call() const { return call_; }
  const proto::Descriptor& socket() const { return socket_; }

 private:
  // False when the connection is closed.
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
