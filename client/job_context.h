// Holds the state that every worker and pull of one job shares: the client's runtime and the job as
// registered. Shared by the public objects of that job. Immutable after construction except for the
// timeline; any thread.
#ifndef KAON_CLIENT_JOB_CONTEXT_H_
#define KAON_CLIENT_JOB_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/kaon/job_definition.h"
#include "client/runtime.h"
#include "client/wire/job_conversion.h"
#include "kaon/v1/coordinator.pb.h"
#include "kernels/mutex.h"

namespace kaon::client {

class JobContext {
 public:
  // Returns INTERNAL if the coordinator's description contradicts itself.
  static absl::StatusOr<std::shared_ptr<const JobContext>> Create(
      std::shared_ptr<Runtime> runtime, const v1::JobDescription& description);

  Runtime& runtime() const { return *runtime_; }
  const std::shared_ptr<Runtime>& shared_runtime() const { return runtime_; }
  const JobDescription& description() const { return description_; }
  const std::string& name() const { return description_.definition.name; }
  uint32_t num_shards() const { return static_cast<uint32_t>(description_.shard_addresses.size()); }
  uint32_t num_parameters() const { return static_cast<uint32_t>(num_elements_.size()); }
  // The parameter with that id.
  const kaon::ParameterSpec& parameter(uint32_t id) const {
    return description_.definition.parameters[id];
  }
  // Returns INVALID_ARGUMENT if no parameter has that name.
  absl::StatusOr<uint32_t> IdOf(const std::string& parameter) const;
  uint64_t num_elements(uint32_t id) const { return num_elements_[id]; }
  uint32_t shard_of(uint32_t id) const { return description_.routes[id].shard; }

  // Timeline of the job when this process attached to it.
  uint64_t attached_timeline() const { return attached_timeline_; }
  // The newest timeline that this process knows.
  uint64_t timeline() const { return timeline_; }
  // Notes that the job continues from `step` in `timeline`. If the timeline is new, calls
  // ClientOptions::on_rewind. On return that callback has returned, even if another thread called
  // it.
  void NoteTimeline(uint64_t timeline, uint64_t step) const ABSL_LOCKS_EXCLUDED(rewind_mu_);

  absl::StatusOr<std::shared_ptr<ShardChannel>> ShardChannelOf(uint32_t shard) const {
    return runtime_->ShardChannelOf(description_.shard_addresses[shard]);
  }

  JobContext(std::shared_ptr<Runtime> runtime, const v1::JobDescription& description);

 private:
  const std::shared_ptr<Runtime> runtime_;
  const JobDescription description_;
  std::vector<uint64_t> num_elements_;
  std::unordered_map<std::string, uint32_t> id_of_;
  const uint64_t attached_timeline_;
  // Held while on_rewind runs: a thread that finds the timeline already known must wait until the
  // callback has returned.
  mutable Mutex rewind_mu_;
  // Written under rewind_mu_.
  mutable std::atomic<uint64_t> timeline_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_JOB_CONTEXT_H_
