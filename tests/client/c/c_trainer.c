#include "tests/client/c/c_trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kaon/kaon.h"

#define NUM_ELEMENTS 6
#define NUM_STEPS 3

static int failures = 0;

static void Check(int holds, const char* what) {
  if (holds) return;
  printf("c_trainer: failed: %s\n", what);
  ++failures;
}

static void Ok(kaon_status* status, const char* what) {
  if (status == NULL) return;
  printf("c_trainer: %s: code %d, %s\n", what, kaon_status_code(status),
         kaon_status_message(status));
  ++failures;
  kaon_status_free(status);
}

// Waits for the future, whose operation must have succeeded, and frees it.
static void Await(kaon_future* future, const char* what) {
  Check(kaon_future_wait(future, -1) == 1, what);
  Ok(kaon_future_result(future, NULL), what);
  kaon_future_free(future);
}

static const char kDefinition[] =
    "{\"name\": \"from-c\", \"world_size\": 1, \"scalar_group\": \"all\","
    " \"groups\": [{\"name\": \"all\", \"rule\": \"RULE_SGD\", \"lr\": 0.5}],"
    " \"parameters\": [{\"name\": \"w\", \"shape\": [2, 3]}]}";

static void TrainSteps(kaon_job* job, kaon_worker* worker, float* weights) {
  float gradient[NUM_ELEMENTS];
  float expected[NUM_ELEMENTS];
  memcpy(expected, weights, sizeof expected);
  for (uint64_t number = 1; number <= NUM_STEPS; ++number) {
    const kaon_tensor pushed = {gradient, NUM_ELEMENTS, KAON_FLOAT32, 0};
    const kaon_tensor pulled = {weights, NUM_ELEMENTS, KAON_FLOAT32, 0};
    kaon_begin_options begin = KAON_BEGIN_OPTIONS_INIT;
    const kaon_group_factor factor = {"all", 0.5};
    kaon_finish_options finish = {sizeof(kaon_finish_options), 1.25, NULL, 0};
    kaon_step_record record = {.size = sizeof(kaon_step_record)};
    kaon_step* step = NULL;
    kaon_future* future = NULL;
    begin.step = number;
    // Halves the learning rate of the last step.
    begin.group_factors = &factor;
    begin.num_group_factors = number == NUM_STEPS ? 1 : 0;
    for (int i = 0; i < NUM_ELEMENTS; ++i) {
      gradient[i] = (float)(i + 1) * (float)number;
      expected[i] -= (number == NUM_STEPS ? 0.25f : 0.5f) * gradient[i];
    }
    Ok(kaon_worker_begin(worker, &begin, &step), "begin");
    Ok(kaon_step_push(step, &pushed, 0, NULL), "push");
    Ok(kaon_step_finish(step, &finish, &future), "finish");
    Ok(kaon_future_result(future, &record), "decision");
    Check(record.step == number && record.applied == 1, "the step was applied");
    Check(record.num_ranks == 1 && record.ranks[0] == 0, "rank 0 took part");
    Check(record.loss == 1.25, "the record has the loss");
    Check(record.num_groups == 1 && strcmp(record.groups[0].name, "all") == 0, "one group");
    Check(fabs(record.groups[0].norm - number * sqrt(91)) < 1e-6, "the group's norm");
    kaon_future_free(future);
    kaon_step_free(step);
    Ok(kaon_job_pull(job, number, &pulled, 1, &future), "pull");
    Await(future, "pulled");
    Check(memcmp(weights, expected, sizeof expected) == 0, "the weights are those of SGD");
  }
}

int RunCTrainer(const char* endpoint) {
  kaon_client_options options = {.size = sizeof(kaon_client_options), .endpoints = endpoint};
  float weights[NUM_ELEMENTS] = {1, 2, 3, 4, 5, 6};
  const kaon_tensor loaded = {weights, NUM_ELEMENTS, KAON_FLOAT32, 0};
  kaon_progress progress = {.size = sizeof(kaon_progress)};
  kaon_transfer_totals totals = {.size = sizeof(kaon_transfer_totals)};
  kaon_client* client = NULL;
  kaon_job* job = NULL;
  kaon_worker* worker = NULL;
  kaon_future* future = NULL;
  char* description = NULL;
  uint64_t step = 99;
  failures = 0;

  Ok(kaon_client_connect(&options, &client), "connect");
  Ok(kaon_client_register(client, kDefinition, &job), "register");
  if (job == NULL) return failures;
  Ok(kaon_job_description(job, &description), "description");
  Check(strstr(description, "\"timeline\":1") != NULL, "the description has the timeline");
  kaon_string_free(description);
  Ok(kaon_job_refresh(job, &progress), "refresh");
  Check(progress.timeline == 1 && progress.weights_loaded == 0, "the job has no weights yet");
  Ok(kaon_job_join(job, 0, &worker), "join");
  Ok(kaon_worker_load_weights(worker, &loaded, 1, &future), "load");
  Await(future, "loaded");
  Ok(kaon_job_wait_for_weights(job, 1000, &step), "weights");
  Check(step == 0, "no step was applied");
  TrainSteps(job, worker, weights);
  Check(kaon_worker_loss_scale(worker) == 1, "no loss scale");
  Ok(kaon_client_transfer_totals(client, &totals), "totals");
  Check(totals.push_bytes == (NUM_STEPS + 1) * sizeof weights, "bytes pushed");
  kaon_worker_free(worker);
  kaon_job_free(job);
  kaon_client_free(client);
  return failures;
}
