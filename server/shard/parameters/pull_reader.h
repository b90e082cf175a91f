// Serves a pull for any transport: selects the next chunks and reads them from the
// ParameterPublisher. Owned by one call of PullStream or ShmSession; one thread at a time.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PULL_READER_H_
#define KAON_SERVER_SHARD_PARAMETERS_PULL_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/region.h"
#include "proto/identity.h"
#include "server/monitor/event_counts.h"
#include "server/shard/parameters/parameter_publisher.h"

namespace kaon::shard {

class PullReader {
 public:
  // `publisher` and `counts` outlive the reader.
  PullReader(ParameterPublisher& publisher, monitor::EventCounts& counts, proto::Identity peer)
      : publisher_(publisher), counts_(counts), peer_(std::move(peer)) {}
  // Unpins what was not read to its end.
  ~PullReader();
  PullReader(const PullReader&) = delete;
  PullReader& operator=(const PullReader&) = delete;

  // Checks and pins the request. Errors of this method and those below are those of ShardData.Pull
  // and end the pull.
  absl::Status Open(v1::PullRequest request);
  // Returns true once everything was read.
  bool done() const { return next_parameter_ == request_.parameter_ids_size(); }
  // Returns true if Next may be called. Otherwise calls `ready` on any thread when a retry makes
  // sense. `ready` keeps alive what it uses. Do not call it when done.
  absl::StatusOr<bool> Await(std::function<void()> ready);
  // Cancels `ready`.
  void Forget();
  // Returns the chunks of the next message, without checksums, and counts them as read. A message
  // holds one chunk, or several small parameters that are present and fit whole. Call it after
  // Await returned true.
  std::vector<v1::TensorChunk> Next();
  uint64_t BytesOf(const std::vector<v1::TensorChunk>& chunks) const;
  // Writes BytesOf(chunks) bytes to `to`, host memory or the backend's. In host memory, sets the
  // checksums of the chunks.
  absl::Status Read(std::vector<v1::TensorChunk>& chunks, kernels::Region to);
  // Counts and logs the end of a pull.
  void NoteEnd(const absl::Status& status) const;

 private:
  ParameterPublisher& publisher_;
  monitor::EventCounts& counts_;
  const proto::Identity peer_;
  v1::PullRequest request_;
  // The publisher's pin for this request; 0: nothing is pinned.
  ReaderId reader_ = 0;
  // Index into the request's parameters, and first element of the next chunk.
  int next_parameter_ = 0;
  uint64_t next_element_ = 0;
  WaiterId waiter_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PULL_READER_H_
