// What a pull asks for, whatever carries it: which chunks are next, and their bytes from the
// ParameterPublisher. Owned by one call of PullStream or ShmSession, one thread at a time.
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
#include "proto/identity.h"
#include "server/monitor/event_counts.h"
#include "server/shard/parameters/parameter_publisher.h"

namespace kaon::shard {

class PullReader {
 public:
  // `publisher` and `counts` outlive the reader.
  PullReader(ParameterPublisher& publisher, monitor::EventCounts& counts, proto::Identity peer)
      : publisher_(publisher), counts_(counts), peer_(std::move(peer)) {}
  // Lets go of what was not read to its end.
  ~PullReader();
  PullReader(const PullReader&) = delete;
  PullReader& operator=(const PullReader&) = delete;

  // Errors, of this and the methods below, are those of ShardData.Pull and end the pull.
  absl::Status Open(v1::PullRequest request);
  // Everything was read.
  bool done() const { return next_parameter_ == request_.parameter_ids_size(); }
  // False: `ready`, which must keep alive what it touches, will be called when it is worth asking
  // again, on any thread. Not when done.
  absl::StatusOr<bool> Await(std::function<void()> ready);
  // `ready` need not be called any more.
  void Forget();
  // The chunks of the next message, without checksums: one, or several of parameters that are there
  // already and so small that they fit into one message whole. They count as read. Once Await was
  // true.
  std::vector<v1::TensorChunk> Next();
  uint64_t BytesOf(const std::vector<v1::TensorChunk>& chunks) const;
  // `to` <- BytesOf(chunks) bytes, and in the chunks their checksums.
  absl::Status Read(std::vector<v1::TensorChunk>& chunks, std::byte* to);
  // Counts and logs how a pull ended.
  void NoteEnd(const absl::Status& status) const;

 private:
  ParameterPublisher& publisher_;
  monitor::EventCounts& counts_;
  const proto::Identity peer_;
  v1::PullRequest request_;
  // What is asked for is pinned by it; 0 = nothing is.
  ReaderId reader_ = 0;
  // Index into the request's parameters, and the first element of the next chunk.
  int next_parameter_ = 0;
  uint64_t next_element_ = 0;
  WaiterId waiter_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PULL_READER_H_
