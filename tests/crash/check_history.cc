// T10: asks a shard for its log and says whether it explains what the clients of the same job have
// called and were told. Exit status: 0 if it does, 1 with what is wrong, 2 if it could not be
// asked.
#include <grpcpp/client_context.h>

#include <CLI/CLI.hpp>
#include <deque>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/channel.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "proto/grpc_deadline.h"
#include "proto/status_macros.h"
#include "tests/crash/client_log.h"
#include "tests/simulation/history.h"
#include "tests/simulation/model.h"

namespace kaon::crash {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);

// As the model of the simulator knows lives: by a number of each process.
v1::StepRecord WithLives(v1::StepRecord record) {
  if (!record.plan().has_step()) return record;
  for (v1::Member& member : *record.mutable_plan()->mutable_step()->mutable_members()) {
    member.set_process_nonce(LifeOf(member.rank(), member.token_weight()));
  }
  return record;
}

absl::StatusOr<simulation::Log> ReadLog(const std::string& shard, const std::string& tls_dir) {
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
  if (!status.ok()) return absl::UnavailableError(status.error_message());
  simulation::Log log;
  for (const v1::StepRecord& record : response.records()) {
    log[simulation::KeyOf(record.plan())] = WithLives(record);
  }
  return log;
}

// What is wrong, or nothing.
absl::StatusOr<std::string> Check(const std::string& shard, const std::string& tls_dir,
                                  const std::vector<std::string>& paths, uint32_t workers) {
  KAON_ASSIGN_OR_RETURN(const simulation::Log log, ReadLog(shard, tls_dir));
  std::deque<simulation::Operation> operations;
  for (const std::string& path : paths) {
    KAON_RETURN_IF_ERROR(ReadClientLog(path, log, operations));
  }
  size_t unknown = 0;
  for (const simulation::Operation& operation : operations) {
    unknown += operation.outcome == simulation::Operation::Outcome::kUnknown;
  }
  const std::string wrong =
      simulation::Contradiction(simulation::TinyJob(workers), log, operations);
  if (wrong.empty()) {
    std::cout << "history: " << operations.size() << " operations, " << unknown
              << " of them unanswered, explained by " << log.size() << " entries" << std::endl;
  }
  return wrong;
}

}  // namespace
}  // namespace kaon::crash

int main(int argc, char** argv) {
  std::string shard;
  std::string tls_dir;
  std::vector<std::string> logs;
  uint32_t workers = 2;
  CLI::App app("Says whether a shard's log explains what clients have logged");
  app.add_option("--shard", shard)->required();
  app.add_option("--tls-dir", tls_dir)->required();
  app.add_option("--workers", workers);
  app.add_option("logs", logs)->required();
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<std::string> wrong = kaon::crash::Check(shard, tls_dir, logs, workers);
  if (!wrong.ok()) {
    std::cerr << wrong.status() << std::endl;
    return 2;
  }
  if (wrong->empty()) return 0;
  std::cout << "CONTRADICTION: " << *wrong << std::endl;
  return 1;
}
