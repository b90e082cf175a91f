// A decided record, or none, with the messages that carry it to shards and to workers. Each message
// is made and serialized once, when the first receiver needs it. Used on the machine's thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_DECIDED_RECORD_H_
#define KAON_SERVER_COORDINATOR_MACHINE_DECIDED_RECORD_H_

#include <memory>
#include <utility>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/shared_message.h"

namespace kaon::coordinator {

class DecidedRecord {
 public:
  DecidedRecord() = default;
  explicit DecidedRecord(v1::StepRecord record) : kept_(std::make_shared<Kept>()) {
    kept_->record = std::move(record);
  }

  bool has_value() const { return kept_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  const v1::StepRecord& operator*() const { return kept_->record; }
  const v1::StepRecord* operator->() const { return &kept_->record; }
  void reset() { kept_ = nullptr; }

  // Return the body of a message and an event. Both require a value.
  Shared<v1::CoordinatorToShard> ForShards() const {
    if (kept_->for_shards == nullptr) {
      v1::CoordinatorToShard body;
      *body.mutable_decision() = kept_->record;
      kept_->for_shards = Share(std::move(body));
    }
    return kept_->for_shards;
  }
  Shared<v1::StepEvent> ForWorkers() const {
    if (kept_->for_workers == nullptr) {
      v1::StepEvent event;
      *event.mutable_decided() = kept_->record;
      kept_->for_workers = Share(std::move(event));
    }
    return kept_->for_workers;
  }

 private:
  struct Kept {
    v1::StepRecord record;
    // Null until the first receiver needs them.
    Shared<v1::CoordinatorToShard> for_shards;
    Shared<v1::StepEvent> for_workers;
  };

  // Copies share the record: the newest record is most often the newest step's too.
  std::shared_ptr<Kept> kept_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_DECIDED_RECORD_H_
