// Prints size and offsets of every struct of the C API, for abi_test.sh.
#include <stdio.h>

#include "kaon/kaon.h"

#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) \
  printf("  %s.%s %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type*)0)->field))

int main(void) {
  STRUCT(kaon_tensor);
  FIELD(kaon_tensor, elements);
  FIELD(kaon_tensor, num_elements);
  FIELD(kaon_tensor, dtype);
  FIELD(kaon_tensor, parameter_id);
  STRUCT(kaon_client_options);
  FIELD(kaon_client_options, size);
  FIELD(kaon_client_options, endpoints);
  FIELD(kaon_client_options, tls_ca);
  FIELD(kaon_client_options, tls_certificate);
  FIELD(kaon_client_options, tls_private_key);
  FIELD(kaon_client_options, transport);
  FIELD(kaon_client_options, lanes);
  FIELD(kaon_client_options, call_deadline_ms);
  FIELD(kaon_client_options, step_deadline_ms);
  FIELD(kaon_client_options, wait_log_interval_ms);
  FIELD(kaon_client_options, max_bytes_in_flight);
  FIELD(kaon_client_options, on_rewind);
  FIELD(kaon_client_options, on_rewind_argument);
  FIELD(kaon_client_options, nccl);
  FIELD(kaon_client_options, nccl_device);
  STRUCT(kaon_progress);
  FIELD(kaon_progress, size);
  FIELD(kaon_progress, timeline);
  FIELD(kaon_progress, applied_step);
  FIELD(kaon_progress, weights_loaded);
  STRUCT(kaon_group_factor);
  FIELD(kaon_group_factor, group);
  FIELD(kaon_group_factor, factor);
  STRUCT(kaon_begin_options);
  FIELD(kaon_begin_options, size);
  FIELD(kaon_begin_options, step);
  FIELD(kaon_begin_options, token_weight);
  FIELD(kaon_begin_options, learning_rate_multiplier);
  FIELD(kaon_begin_options, group_factors);
  FIELD(kaon_begin_options, num_group_factors);
  FIELD(kaon_begin_options, micro_batches);
  FIELD(kaon_begin_options, traceparent);
  STRUCT(kaon_finish_options);
  FIELD(kaon_finish_options, size);
  FIELD(kaon_finish_options, loss);
  FIELD(kaon_finish_options, missing_parameters);
  FIELD(kaon_finish_options, num_missing_parameters);
  STRUCT(kaon_norm);
  FIELD(kaon_norm, name);
  FIELD(kaon_norm, norm);
  FIELD(kaon_norm, live_norm);
  FIELD(kaon_norm, clip_factor);
  FIELD(kaon_norm, exempt);
  STRUCT(kaon_step_record);
  FIELD(kaon_step_record, size);
  FIELD(kaon_step_record, step);
  FIELD(kaon_step_record, reason);
  FIELD(kaon_step_record, ranks);
  FIELD(kaon_step_record, num_ranks);
  FIELD(kaon_step_record, groups);
  FIELD(kaon_step_record, num_groups);
  FIELD(kaon_step_record, norm_groups);
  FIELD(kaon_step_record, num_norm_groups);
  FIELD(kaon_step_record, grad_norm);
  FIELD(kaon_step_record, live_norm);
  FIELD(kaon_step_record, loss);
  FIELD(kaon_step_record, next_loss_scale);
  FIELD(kaon_step_record, applied_updates);
  FIELD(kaon_step_record, state_digest);
  FIELD(kaon_step_record, applied);
  STRUCT(kaon_transfer_totals);
  FIELD(kaon_transfer_totals, size);
  FIELD(kaon_transfer_totals, push_bytes);
  FIELD(kaon_transfer_totals, pull_bytes);
  FIELD(kaon_transfer_totals, shm_bytes);
  FIELD(kaon_transfer_totals, shm_refusals);
  FIELD(kaon_transfer_totals, retries);
  FIELD(kaon_transfer_totals, infinite_pulled);
  FIELD(kaon_transfer_totals, nccl_bytes);
  return 0;
}
