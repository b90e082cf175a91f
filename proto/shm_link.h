// One end of a session over shared memory: the two rings, and the UNIX socket over which each end
// tells the other to look at them. A socket and no futex or eventfd in shared memory: whatever the
// other end does to its own, this end's stays as it is, and it also says when the other end has
// died. Used by one thread at a time, but for Wake.
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

// What the records are. Bodies of requests and answers are the messages of shard_data.proto.
enum class ShmRecord : uint32_t {
  // Worker to shard. A PushRequest; one with `open` begins the call.
  kPushRequest = 1,
  // A PullRequest; begins the call.
  kPullRequest = 2,
  // The worker wants no more of the call. No body.
  kCancel = 3,
  // Shard to worker.
  kPushResponse = 4,
  kPullResponse = 5,
  // The call is over with the header's `code`; the body is the message.
  kEnd = 6,
};

// A token of OpenSessionResponse.
inline constexpr size_t kShmTokenBytes = 32;

class ShmLink {
 public:
  // The shard's end of a connection that has presented its token: makes the memory and hands it
  // over. RESOURCE_EXHAUSTED, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<ShmLink>> Serve(Descriptor socket, size_t ring_bytes);
  // The worker's end: connects, presents `token`, and gets the memory. UNAVAILABLE and the errors
  // of ShmRegion::Open.
  static absl::StatusOr<std::unique_ptr<ShmLink>> Connect(const std::string& address,
                                                          absl::string_view token);

  RingWriter& writer() { return writer_; }
  RingReader& reader() { return reader_; }

  // Writes a record whose body is `body`. False if there is no room for it now.
  absl::StatusOr<bool> Write(const RingHeader& header, absl::string_view body);
  // Tells the other end that there is something to read, or room to write.
  void Ring();
  // Returns when the other end rings, Wake is called or `timeout` has passed. UNAVAILABLE when the
  // other end is gone.
  absl::Status Await(absl::Duration timeout);
  // From any thread.
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
