// One end of a session over shared memory: two rings, and the UNIX socket over which each end wakes
// the other. A socket is used rather than a futex or eventfd in shared memory, for two reasons. The
// other end cannot disturb it, and it reports the death of the other end. Used by one thread at a
// time, except for Wake.
#ifndef KAON_PROTO_SHM_LINK_H_
#define KAON_PROTO_SHM_LINK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/descriptor.h"
#include "proto/shm_region.h"
#include "proto/shm_ring.h"

namespace kaon::proto {

// Kinds of records. Bodies of requests and answers are messages of shard_data.proto.
enum class ShmRecord : uint32_t {
  // Worker to shard: a PushRequest. One with `open` begins the call.
  kPushRequest = 1,
  // Worker to shard: a PullRequest; begins the call.
  kPullRequest = 2,
  // Worker to shard: cancels the call. No body.
  kCancel = 3,
  // Shard to worker: answers.
  kPushResponse = 4,
  kPullResponse = 5,
  // Shard to worker: ends the call with the header's `code`; the body is the message.
  kEnd = 6,
};

// Size of OpenSessionResponse.token.
inline constexpr size_t kShmTokenBytes = 32;

class ShmLink {
 public:
  // Creates the shard's end on a connection that has presented its token: allocates the memory and
  // sends its descriptor. RESOURCE_EXHAUSTED, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<ShmLink>> Serve(Descriptor socket, size_t ring_bytes);
  // Creates the worker's end: connects, presents `token` and receives the memory. UNAVAILABLE and
  // the errors of ShmRegion::Open.
  static absl::StatusOr<std::unique_ptr<ShmLink>> Connect(const std::string& address,
                                                          absl::string_view token);

  RingWriter& writer() { return writer_; }
  RingReader& reader() { return reader_; }

  // Writes a record with this body. Returns false if there is no room for it now.
  absl::StatusOr<bool> Write(const RingHeader& header, absl::string_view body);
  // Wakes the other end: there is something to read, or room to write.
  void Ring();
  // Returns when the other end rings, Wake is called or `timeout` has passed. UNAVAILABLE when the
  // other end is gone.
  absl::Status Await(absl::Duration timeout);
  // Ends the present or the next Await. Any thread.
  void Wake();

 private:
  enum class End { kShard, kWorker };
  ShmLink(End end, Descriptor socket, std::unique_ptr<ShmRegion> region, Descriptor wake);
  static absl::StatusOr<std::unique_ptr<ShmLink>> Create(End end, Descriptor socket,
                                                         std::unique_ptr<ShmRegion> region);

  const Descriptor socket_;
  const std::unique_ptr<ShmRegion> region_;
  const Descriptor wake_;
  RingWriter writer_;
  RingReader reader_;
};

}  // namespace kaon::proto

#endif  // KAON_PROTO_SHM_LINK_H_
