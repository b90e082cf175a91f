// Types of the C API (kaon.h), in plain C. A struct that begins with `size` may grow behind its
// end in a later release, never in its padding. Set `size` to its sizeof, as the KAON_..._INIT
// macros do. The library reads and writes at most `size` bytes. INVALID_ARGUMENT if a longer struct
// has bytes after the known fields that are not zero. Structs without `size` never change. Plain
// values; any thread.
#ifndef KAON_CLIENT_KAON_KAON_TYPES_H_
#define KAON_CLIENT_KAON_KAON_TYPES_H_

#include <stddef.h>
#include <stdint.h>

// Handles. NULL is no handle, and every kaon_..._free ignores it.
typedef struct kaon_status kaon_status;
typedef struct kaon_client kaon_client;
typedef struct kaon_job kaon_job;
typedef struct kaon_worker kaon_worker;
typedef struct kaon_step kaon_step;
typedef struct kaon_future kaon_future;

// Codes of a status: numbers and words of the canonical gRPC codes. 0 is OK.
enum {
  KAON_CANCELLED = 1,
  KAON_UNKNOWN = 2,
  KAON_INVALID_ARGUMENT = 3,
  KAON_DEADLINE_EXCEEDED = 4,
  KAON_NOT_FOUND = 5,
  KAON_ALREADY_EXISTS = 6,
  KAON_PERMISSION_DENIED = 7,
  KAON_RESOURCE_EXHAUSTED = 8,
  KAON_FAILED_PRECONDITION = 9,
  KAON_ABORTED = 10,
  KAON_OUT_OF_RANGE = 11,
  KAON_UNIMPLEMENTED = 12,
  KAON_INTERNAL = 13,
  KAON_UNAVAILABLE = 14,
  KAON_DATA_LOSS = 15,
  KAON_UNAUTHENTICATED = 16
};

// Values of kaon_tensor.dtype.
enum { KAON_FLOAT32 = 1, KAON_BFLOAT16 = 2, KAON_FLOAT16 = 3 };

// Values of kaon_client_options.transport (kaon::Transport).
enum { KAON_TRANSPORT_AUTO = 0, KAON_TRANSPORT_GRPC = 1, KAON_TRANSPORT_SHM = 2 };

// A parameter's elements in the caller's memory: dense, row-major. They are in host memory unless a
// call says otherwise. Each call says how long they must stay valid.
typedef struct kaon_tensor {
  // Never written by a push or a load.
  void* elements;
  uint64_t num_elements;
  uint32_t dtype;
  // Index of the parameter in the job's definition.
  uint32_t parameter_id;
} kaon_tensor;

typedef struct kaon_client_options {
  size_t size;
  // host:port of every coordinator, separated by commas. NULL: the environment names addresses and
  // certificates (kaon::ClientOptions::FromEnvironment).
  const char* endpoints;
  // Paths of PEM files. NULL: from the environment if `endpoints` is NULL, or else none.
  const char* tls_ca;
  const char* tls_certificate;
  const char* tls_private_key;
  int32_t transport;
  // In the fields below 0 is the default of client_options.h, which says more.
  // Connections to each shard, 1 .. 4.
  uint32_t lanes;
  // Deadline of connect and of each control call, in milliseconds.
  uint64_t call_deadline_ms;
  // Deadline of a step from begin to finish and from finish to its decision, and of a pull.
  uint64_t step_deadline_ms;
  // Interval at which the log says what a call waits for.
  uint64_t wait_log_interval_ms;
  // Payload bytes sent and not yet acknowledged, at least 1 MiB.
  uint64_t max_bytes_in_flight;
  // Called when the job went back to a checkpoint and continues after `step`; NULL: nobody is
  // called. It runs on any thread, must not block and must not call the library.
  void (*on_rewind)(void* argument, uint64_t timeline, uint64_t step);
  void* on_rewind_argument;
  // Network interface or subnet for NCCL. NULL: from the environment if `endpoints` is NULL, or
  // else none. "": none.
  const char* nccl;
  // Number of the CUDA device that tensors may be on.
  int32_t nccl_device;
} kaon_client_options;

// State of a job, as the coordinator says.
typedef struct kaon_progress {
  size_t size;
  // Grows when the job goes back to a checkpoint.
  uint64_t timeline;
  // Newest decided step, including skipped ones.
  uint64_t applied_step;
  // 1 once the job has weights.
  int32_t weights_loaded;
} kaon_progress;

// Factor on the learning rate of one group, by name.
typedef struct kaon_group_factor {
  const char* group;
  double factor;
} kaon_group_factor;

// kaon::BeginOptions in step.h says more.
typedef struct kaon_begin_options {
  size_t size;
  // The job's applied step + 1.
  uint64_t step;
  // Weight of this worker in the mean over the ranks.
  double token_weight;
  // Factor on each group's base learning rate.
  double learning_rate_multiplier;
  // Further factors on single groups.
  const kaon_group_factor* group_factors;
  size_t num_group_factors;
  // Contributions that this worker pushes for each parameter; the shards add them.
  uint32_t micro_batches;
  // W3C traceparent of the trainer's span, of which the step becomes a part if the coordinator
  // exports traces. NULL, "" or a malformed one: the step has a trace of its own. One that is not
  // sampled: it has none.
  const char* traceparent;
} kaon_begin_options;

#define KAON_BEGIN_OPTIONS_INIT \
  { sizeof(kaon_begin_options), 0, 1.0, 1.0, NULL, 0, 1, NULL }

typedef struct kaon_finish_options {
  size_t size;
  // NaN: this worker reports no loss.
  double loss;
  // Ids of the parameters without a gradient in this step.
  const uint32_t* missing_parameters;
  size_t num_missing_parameters;
} kaon_finish_options;

// Norm and clipping of a group or a norm group. NaN: not computed or not reported.
typedef struct kaon_norm {
  const char* name;
  double norm;
  // Norm over the parameters that can be clipped; NaN for a group.
  double live_norm;
  double clip_factor;
  // 1 if norm clipping leaves the group alone; 0 for a norm group.
  int32_t exempt;
} kaon_norm;

// The decision of a step (kaon::StepRecord in step_record.h). The future owns what it points to.
typedef struct kaon_step_record {
  size_t size;
  uint64_t step;
  // Why the step was skipped; "" if it was applied.
  const char* reason;
  // Ranks whose gradients the step used, ascending.
  const uint32_t* ranks;
  size_t num_ranks;
  const kaon_norm* groups;
  size_t num_groups;
  const kaon_norm* norm_groups;
  size_t num_norm_groups;
  // Norms of norm group main, and the mean of the workers' losses; NaN: absent.
  double grad_norm;
  double live_norm;
  double loss;
  // Multiply the next loss by this.
  double next_loss_scale;
  uint64_t applied_updates;
  // Digest of the job's weights and optimizer state before this step.
  uint64_t state_digest;
  // 1, or 0 if the step was skipped.
  int32_t applied;
} kaon_step_record;

// Totals since kaon_client_connect (kaon::TransferTotals in client.h).
typedef struct kaon_transfer_totals {
  size_t size;
  uint64_t push_bytes;
  uint64_t pull_bytes;
  uint64_t shm_bytes;
  uint64_t shm_refusals;
  uint64_t retries;
  uint64_t infinite_pulled;
  uint64_t nccl_bytes;
} kaon_transfer_totals;

#endif  // KAON_CLIENT_KAON_KAON_TYPES_H_
