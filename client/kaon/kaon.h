// The C API of the Kaon client library, for other languages: libkaon.so exports these functions and
// nothing else. Plain C. A function does what its namesake in client.h, job.h, worker.h, step.h
// and future.h does; these headers say more.
//
// Errors: a call returns NULL for success, or a status that the caller frees. Results are written
// on success only. INVALID_ARGUMENT names an argument that is NULL. No call throws.
// Ownership: the caller frees every handle and string that a call returns, in any order. Arguments
// are copied before the return, except for elements of tensors.
// Threads: any threads may use a handle concurrently, but none may free a handle in use.
// After fork() the child may free handles. Its other calls fail, and futures have no result there.
#ifndef KAON_CLIENT_KAON_KAON_H_
#define KAON_CLIENT_KAON_KAON_H_

#include <stddef.h>
#include <stdint.h>

#include "kaon/kaon_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns the version of the library, such as "0.1.0"; never freed.
const char* kaon_version(void);

// Returns the code; 0 for NULL.
int32_t kaon_status_code(const kaon_status* status);
// Returns the message, which lives as long as the status; "" for NULL.
const char* kaon_status_message(const kaon_status* status);
// Returns 1 if the same call may succeed later: UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED.
int32_t kaon_status_retriable(const kaon_status* status);
void kaon_status_free(kaon_status* status);

// Frees a string that a call returned.
void kaon_string_free(char* text);

// Blocks until a coordinator answers, at most call_deadline_ms. `options` may be NULL: all from the
// environment.
kaon_status* kaon_client_connect(const kaon_client_options* options, kaon_client** client);
// Creates the job, or attaches to an equal one. `definition_json` is a kaon.v1.JobDefinition of
// proto/kaon/v1/parameters.proto in Protobuf's JSON. Without a value world_size is 1, and the dtype
// of a parameter FLOAT32. INVALID_ARGUMENT names an unknown field.
kaon_status* kaon_client_register(kaon_client* client, const char* definition_json, kaon_job** job);
kaon_status* kaon_client_attach(kaon_client* client, const char* name, kaon_job** job);
// INVALID_ARGUMENT says why no tensor may be on that CUDA device. See kaon_client_options.nccl.
kaon_status* kaon_client_check_device(const kaon_client* client, int32_t device);
kaon_status* kaon_client_transfer_totals(const kaon_client* client, kaon_transfer_totals* totals);
// Cancels running operations and waits for the library's threads. Jobs, workers, steps and futures
// stay valid, but their calls fail. Do not call it from a callback.
void kaon_client_free(kaon_client* client);

// Returns the job as registered, as JSON. `definition` is a kaon.v1.JobDefinition with every
// default written out. `routes` has group, norm_group, reason, shard, lr_multiplier and
// weight_decay_multiplier for each parameter id. The others are timeline, applied_step,
// weights_loaded and shard_addresses, as they were at the registration.
kaon_status* kaon_job_description(const kaon_job* job, char** json);
// Asks the coordinator.
kaon_status* kaon_job_refresh(kaon_job* job, kaon_progress* progress);
// Blocks until the job has weights, and returns the applied step, which is the version to pull.
// DEADLINE_EXCEEDED after timeout_ms; 0 asks once.
kaon_status* kaon_job_wait_for_weights(kaon_job* job, uint64_t timeout_ms, uint64_t* step);
// Claims a rank. An earlier process of that rank loses it.
kaon_status* kaon_job_join(kaon_job* job, uint32_t rank, kaon_worker** worker);
// Reads version `step` into the tensors, which have one dtype. The elements must stay valid until
// the future is ready; an error leaves them undefined.
kaon_status* kaon_job_pull(kaon_job* job, uint64_t step, const kaon_tensor* tensors,
                           size_t num_tensors, kaon_future** pulled);
// Does what kaon_job_pull does, to memory of a CUDA device; -1: host memory. Nothing may use the
// elements until the future is ready, not even a kernel that was queued before.
kaon_status* kaon_job_pull_to_device(kaon_job* job, uint64_t step, const kaon_tensor* tensors,
                                     size_t num_tensors, int32_t device, kaon_future** pulled);
void kaon_job_free(kaon_job* job);

// Loads version 0 of the weights: one fp32 tensor for each parameter, in the order of ids. The
// elements must stay valid until the future is ready.
kaon_status* kaon_worker_load_weights(kaon_worker* worker, const kaon_tensor* tensors,
                                      size_t num_tensors, kaon_future** loaded);
kaon_status* kaon_worker_begin(kaon_worker* worker, const kaon_begin_options* options,
                               kaon_step** step);
// Returns the factor for the next loss; 1 for NULL.
double kaon_worker_loss_scale(const kaon_worker* worker);
void kaon_worker_free(kaon_worker* worker);

// Queues a contribution. The elements must stay valid and unmodified until the future of finish is
// ready, or until a step that was not finished is freed. `pushed` may be NULL; its future is ready
// once the shard has the whole contribution.
kaon_status* kaon_step_push(kaon_step* step, const kaon_tensor* gradient, uint32_t micro_batch,
                            kaon_future** pushed);
// Queues a contribution for each tensor, as kaon_step_push does, in one call. The first error ends
// it; the tensors before that one are queued.
kaon_status* kaon_step_push_all(kaon_step* step, const kaon_tensor* gradients, size_t num_gradients,
                                uint32_t micro_batch);
// Does what kaon_step_push_all does, from memory of a CUDA device; -1: host memory. `ready_event`
// is a cudaEvent_t of the device that all elements are ready after. NULL: they are ready. Keep it
// as long as the elements. The library waits for it, and for no other work of the device.
kaon_status* kaon_step_push_on_device(kaon_step* step, const kaon_tensor* gradients,
                                      size_t num_gradients, uint32_t micro_batch, int32_t device,
                                      void* ready_event);
// Declares that every gradient is queued. `options` may be NULL: no loss, and no missing parameter.
kaon_status* kaon_step_finish(kaon_step* step, const kaon_finish_options* options,
                              kaon_future** decided);
// Stops the step if it was not finished, and waits until the library no longer reads its tensors.
// After kaon_step_finish it does neither: wait for that future, or cancel it and wait.
void kaon_step_free(kaon_step* step);

// Waits at most timeout_ms, or forever if it is negative. Returns 1 if there is a result, or if
// kaon_future_result fails at once, as it does in a forked child and for NULL; otherwise 0.
int32_t kaon_future_wait(const kaon_future* future, int64_t timeout_ms);
// Waits for the result and returns its error; it may be called again. `record` may be NULL. A
// future of kaon_step_finish fills it; what it points to lives as long as the future.
kaon_status* kaon_future_result(const kaon_future* future, kaon_step_record* record);
// Calls `callback` once: on the library thread that has the result, or at once if there is one. It
// must not block, and may free neither a step nor the client. A second callback replaces the first
// one, unless that has run.
kaon_status* kaon_future_on_ready(kaon_future* future, void (*callback)(void* argument),
                                  void* argument);
// Asks the operation to stop: its result becomes CANCELLED unless another one is on its way.
void kaon_future_cancel(kaon_future* future);
// Does not cancel the operation. A callback that has not run still will.
void kaon_future_free(kaon_future* future);

#ifdef __cplusplus
}
#endif

#endif  // KAON_CLIENT_KAON_KAON_H_
