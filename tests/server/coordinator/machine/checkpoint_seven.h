// A checkpoint of TestJob for tests of restores: one shard wrote it at step 7 of timeline 4.
#ifndef KAON_TESTS_SERVER_COORDINATOR_MACHINE_CHECKPOINT_SEVEN_H_
#define KAON_TESTS_SERVER_COORDINATOR_MACHINE_CHECKPOINT_SEVEN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "server/coordinator/machine/registration.h"
#include "server/coordinator/machine/restore_order.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {

inline RestoreOrder OrderOfSeven(const std::string& job, uint64_t expected_step) {
  PlacementLimits limits;
  auto manifest = std::make_shared<v1::CheckpointManifest>();
  manifest->set_id("seven");
  manifest->set_job("tiny");
  manifest->set_timeline(4);
  manifest->set_position(9);
  manifest->set_step(7);
  *manifest->mutable_registration() = MakeRegistration(TestJob(), limits).value();
  manifest->mutable_last_record()->mutable_decision()->set_next_loss_scale(128);
  manifest->mutable_last_record()->mutable_decision()->set_applied_updates(6);
  RestoreOrder order;
  order.request.set_job(job);
  order.request.set_expected_step(expected_step);
  order.manifest = manifest;
  order.manifest_sha256 = "digest";
  return order;
}

}  // namespace kaon::coordinator

#endif  // KAON_TESTS_SERVER_COORDINATOR_MACHINE_CHECKPOINT_SEVEN_H_
