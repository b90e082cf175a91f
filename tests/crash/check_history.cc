// Checks whether the log of the shards, with the discarded steps, explains the calls and results of
// the job's clients (T10). Exit status: 0 if it does, 1 with the contradiction, 2 if a shard did
// not answer, 3 if a discarded step cannot be rebuilt.
#include <grpcpp/client_context.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/transport/channel.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "proto/grpc_deadline.h"
#include "proto/status_macros.h"
#include "tests/crash/client_log.h"
#include "tests/crash/told_steps.h"
#include "tests/simulation/history.h"
#include "tests/simulation/model.h"

namespace kaon::crash {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);

// Gives each member the nonce by which the simulator's model identifies its life.
v1::StepRecord WithLives(v1::StepRecord record) {
  if (!record.plan().has_step()) return record;
  for (v1::Member& member : *record.mutable_plan()->mutable_step()->mutable_members()) {
    member.set_process_nonce(
        NonceOf(LifeOf(member.rank(), member.token_weight()), record.plan().timeline()));
  }
  return record;
}

struct Options {
  std::vector<std::string> shards;
  std::string tls_dir;
  std::vector<std::string> logs;
  uint32_t workers = 2;
  uint64_t interval = 0;
};

// Merges the log that a shard shows into the logs of other shards.
absl::Status ReadLog(const std::string& shard, const std::string& tls_dir, simulation::Log& log) {
  const std::string key = tls_dir + "/coordinator";
  KAON_ASSIGN_OR_RETURN(
      const std::shared_ptr<grpc::Channel> channel,
      client::CreateChannel(shard, {tls_dir + "/ca.crt", key + ".crt", key + ".key"},
                            proto::Role::kShard));
  grpc::ClientContext context;
  context.set_deadline(proto::DeadlineAfter(kDeadline));
  context.set_wait_for_ready(true);
  v1::ReadHistoryResponse response;
  const grpc::Status status = v1::ShardControl::NewStub(channel)->ReadHistory(
      &context, v1::ReadHistoryRequest(), &response);
  if (!status.ok()) return absl::FailedPreconditionError(status.error_message());
  for (const v1::StepRecord& record : response.records()) {
    const v1::StepRecord shown = WithLives(record);
    const auto [other, fresh] = log.emplace(simulation::KeyOf(record.plan()), shown);
    if (fresh || other->second.SerializeAsString() == shown.SerializeAsString()) continue;
    return absl::DataLossError(
        absl::StrCat("shards show two entries at ", record.plan().position()));
  }
  return absl::OkStatus();
}

// Checks the history. DATA_LOSS with the contradiction; UNAVAILABLE if a step cannot be rebuilt;
// other codes if a shard or a file cannot be read.
absl::Status Check(const Options& options) {
  simulation::Log log;
  for (const std::string& shard : options.shards) {
    KAON_RETURN_IF_ERROR(ReadLog(shard, options.tls_dir, log));
  }
  const v1::JobDefinition job = simulation::TinyJob(options.workers);
  ClientHistory history;
  for (const std::string& path : options.logs) KAON_RETURN_IF_ERROR(ReadClientLog(path, history));
  // In mode JOURNAL there is nothing that shards may forget.
  if (options.interval > 0) KAON_RETURN_IF_ERROR(AddToldSteps(job, history, log));
  ExplainTold(log, history);
  const std::string wrong = simulation::Contradiction(job, log, history.operations);
  if (!wrong.empty()) return absl::DataLossError(wrong);
  KAON_ASSIGN_OR_RETURN(const std::vector<TakenBack> taken_back,
                        FindTakenBack(log, options.interval));
  size_t unknown = 0;
  for (const simulation::Operation& operation : history.operations) {
    unknown += operation.outcome == simulation::Operation::Outcome::kUnknown;
  }
  std::cout << "history: " << history.operations.size() << " operations, " << unknown
            << " of them unanswered, explained by " << log.size() << " entries, "
            << taken_back.size() << " of them taken back" << std::endl;
  for (const TakenBack& one : taken_back) {
    std::cout << "taken back: step " << one.step << " of timeline " << one.timeline
              << " by timeline " << one.next_timeline << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace kaon::crash

int main(int argc, char** argv) {
  kaon::crash::Options options;
  CLI::App app("Says whether the log of shards explains what clients have logged");
  app.add_option("--shard", options.shards, "of several, what any of them shows")->required();
  app.add_option("--tls-dir", options.tls_dir)->required();
  app.add_option("--workers", options.workers);
  app.add_option("--interval", options.interval, "steps that a rollback may take back");
  app.add_option("logs", options.logs)->required();
  CLI11_PARSE(app, argc, argv);
  const absl::Status checked = kaon::crash::Check(options);
  if (checked.ok()) return 0;
  std::cout << (absl::IsDataLoss(checked) ? "CONTRADICTION: " : "") << checked.message()
            << std::endl;
  return absl::IsDataLoss(checked) ? 1 : absl::IsUnavailable(checked) ? 3 : 2;
}
