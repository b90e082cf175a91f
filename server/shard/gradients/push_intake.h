// Decodes the messages of a push from any transport (room 3 of a gradient's life). It checks them
// against the peer and passes them to the GradientAccumulator. It makes no decisions. Owned by one
// call of PushStream or ShmSession; one thread at a time.
#ifndef KAON_SERVER_SHARD_GRADIENTS_PUSH_INTAKE_H_
#define KAON_SERVER_SHARD_GRADIENTS_PUSH_INTAKE_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/region.h"
#include "proto/identity.h"
#include "proto/tensor_stream.h"
#include "server/monitor/event_counts.h"
#include "server/shard/gradients/gradient_accumulator.h"

namespace kaon::shard {

class PushIntake {
 public:
  // Immediate answer to a message.
  struct Answer {
    std::optional<v1::PushOpened> opened;
    // The push is complete and everything in it was accepted.
    bool finished = false;
    // Headers of accepted chunks, whose payload travels over NCCL. Pass it to AddReceived.
    std::optional<v1::PushRequest> announced;
    // The message is a finish that must wait for payloads: process it again once they are added.
    bool waits = false;
  };

  // `accumulator` and `counts` outlive the intake.
  PushIntake(GradientAccumulator& accumulator, monitor::EventCounts& counts, proto::Identity peer);

  // Processes a serialized PushRequest and reads its bytes now. Invokes `callbacks` once, for an
  // acceptable open. Errors are those of ShardData.Push and end the push. `awaits_payloads`: some
  // of what was announced was not added yet.
  absl::StatusOr<Answer> Take(proto::Slices message, absl::FunctionRef<PushCallbacks()> callbacks,
                              bool awaits_payloads = false);
  // Adds the payload of an announced message, in host memory or in that of the accumulator's
  // backend. Its digest agrees. Call it in the order of the announcements, on any thread. Errors as
  // of GradientAccumulator::AddChunks.
  absl::Status AddReceived(const v1::PushRequest& announced, kernels::ConstRegion payload) const;
  // Returns the bytes of an announced payload.
  static uint64_t PayloadBytes(const v1::PushRequest& announced);
  // Counts and logs the end of a push.
  void NoteEnd(const absl::Status& status) const;
  // Accepts nothing more. Call it once no callback is needed any more.
  void Close();

  // Fields of the open message; empty before it.
  const v1::PushOpen& open() const { return open_; }

 private:
  absl::StatusOr<Answer> Open(const v1::PushOpen& open,
                              absl::FunctionRef<PushCallbacks()> callbacks);
  absl::StatusOr<Answer> Announce(const v1::PushRequest& message);

  GradientAccumulator& accumulator_;
  monitor::EventCounts& counts_;
  const proto::Identity peer_;
  v1::PushOpen open_;
  std::optional<PushStreamId> stream_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_PUSH_INTAKE_H_
