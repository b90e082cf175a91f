// A registered job: its description, its ranks and its weights. Any threads may use a Job
// concurrently. It stays valid after its Client is destroyed, but every call fails. C++17, standard
// library only.
#ifndef KAON_CLIENT_KAON_JOB_H_
#define KAON_CLIENT_KAON_JOB_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kaon/future.h"
#include "kaon/job_definition.h"
#include "kaon/status.h"
#include "kaon/tensor.h"
#include "kaon/worker.h"

namespace kaon {

// A parameter to read, by id or by name: {3, view} or {"head.weight", view}.
struct PullTarget {
  PullTarget() = default;
  PullTarget(uint32_t parameter_id, MutableTensorView into)
      : parameter_id(parameter_id), into(into) {}
  PullTarget(std::string parameter, MutableTensorView into)
      : parameter(std::move(parameter)), into(into) {}

  uint32_t parameter_id = 0;
  // Used in place of parameter_id unless it is empty.
  std::string parameter;
  // Memory for as many elements as the parameter has. Its dtype is the wire dtype, equal for all
  // targets of a pull.
  MutableTensorView into;
};

class Job {
 public:
  Job(Job&&) noexcept;
  Job& operator=(Job&&) noexcept;
  ~Job();

  const JobDescription& description() const;

  // Reads the applied step and weights_loaded from the coordinator again. DATA_LOSS if the job
  // stopped.
  Result<JobDescription> Refresh();

  // Returns the id of a parameter, its index in JobDefinition::parameters. INVALID_ARGUMENT if the
  // job has no parameter of that name.
  Result<uint32_t> ParameterId(const std::string& parameter) const;

  // Blocks until the job has weights, and returns the applied step: the version to pull, and the
  // step to go on from after a restart. Rank 0 of a new job calls LoadWeights instead.
  // DEADLINE_EXCEEDED if there are none after `timeout`; a timeout of 0 asks once. DATA_LOSS if the
  // job stopped. It asks again while no coordinator answers.
  Result<uint64_t> WaitForWeights(std::chrono::milliseconds timeout);

  // Claims a rank. An earlier process of that rank loses it: its calls end with ABORTED.
  Result<Worker> Join(uint32_t rank);

  // Reads version `step` of the targets (0: the initial weights); delivers all of them, or an
  // error. Keep the memory valid until the future is ready; its contents are undefined after an
  // error.
  Future<Done> Pull(uint64_t step, std::vector<PullTarget> targets);

 private:
  friend class Client;
  class Impl;
  explicit Job(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_JOB_H_
