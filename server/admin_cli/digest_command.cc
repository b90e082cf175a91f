#include "server/admin_cli/digest_command.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

namespace {

std::string NameOf(const v1::ShardStatus& shard) {
  return absl::StrCat("shard ", shard.shard(), " (", shard.address(), ")");
}

absl::Status CheckAnswered(const v1::ShardStatus& shard) {
  if (!shard.connected()) {
    return absl::UnavailableError(absl::StrCat(NameOf(shard), ": ", shard.problem()));
  }
  const std::string& data_loss = shard.description().state().data_loss();
  if (data_loss.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(NameOf(shard), ": ", data_loss));
}

// Removes the position from a description's state digest, which has it once per parameter. A
// record's digest does not have it.
uint64_t StateWithoutPosition(const v1::DescribeShardResponse& facts) {
  uint64_t digest = facts.state_digest();
  for (const v1::ParameterState& parameter : facts.parameters()) {
    digest -= kernels::FactDigest(parameter.parameter_id(), kernels::kPositionSlot,
                                  facts.state().applied_position());
  }
  return digest;
}

}  // namespace

absl::StatusOr<JobDigests> DigestsIn(const v1::GetStatusResponse& status) {
  JobDigests digests;
  digests.job = status.job();
  for (const v1::ShardStatus& shard : status.shards()) {
    KAON_RETURN_IF_ERROR(CheckAnswered(shard));
    const v1::DescribeShardResponse& facts = shard.description();
    if (digests.shards.empty()) {
      digests.timeline = facts.state().timeline();
      digests.position = facts.state().applied_position();
      digests.step = facts.state().applied_step();
    }
    if (facts.state().applied_position() != digests.position) {
      return absl::AbortedError(
          absl::StrCat(NameOf(shard), " is at position ", facts.state().applied_position(), ", ",
                       NameOf(status.shards(0)), " at position ", digests.position));
    }
    digests.shards.push_back(
        {shard.shard(), shard.address(), facts.weights_digest(), StateWithoutPosition(facts)});
    digests.weights += digests.shards.back().weights;
    digests.state += digests.shards.back().state;
  }
  return digests;
}

absl::StatusOr<JobDigests> AskDigests(
    const std::function<absl::StatusOr<v1::GetStatusResponse>()>& ask,
    const std::function<void()>& wait) {
  for (int attempt = 1;; ++attempt) {
    KAON_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, ask());
    absl::StatusOr<JobDigests> digests = DigestsIn(status);
    if (!absl::IsAborted(digests.status())) return digests;
    if (attempt == kDigestAttempts) {
      return absl::AbortedError(absl::StrCat(digests.status().message(), ", asked ", attempt,
                                             " times; the job goes on while it is asked"));
    }
    wait();
  }
}

Json DigestsJson(const JobDigests& digests) {
  Json json = {{"job", digests.job},
               {"timeline", digests.timeline},
               {"position", digests.position},
               {"step", digests.step},
               {"weights_digest", Hex(digests.weights)},
               {"state_digest", Hex(digests.state)}};
  json["shards"] = Json::array();
  for (const ShardDigests& shard : digests.shards) {
    json["shards"].push_back({{"shard", shard.shard},
                              {"address", shard.address},
                              {"weights_digest", Hex(shard.weights)},
                              {"state_digest", Hex(shard.state)}});
  }
  return json;
}

std::string DigestsText(const JobDigests& digests) {
  std::string text = absl::StrCat(
      "job             ", digests.job.empty() ? "-" : digests.job, "\ntimeline        ",
      digests.timeline, "\nposition        ", digests.position, "\nstep            ", digests.step,
      "\nweights digest  ", Hex(digests.weights), "\nstate digest    ", Hex(digests.state), "\n\n");
  Table table({{"SHARD", Align::kRight}, {"ADDRESS"}, {"WEIGHTS DIGEST"}, {"STATE DIGEST"}});
  for (const ShardDigests& shard : digests.shards) {
    table.AddRow({absl::StrCat(shard.shard), shard.address, Hex(shard.weights), Hex(shard.state)});
  }
  return text + table.ToString();
}

}  // namespace kaon::admin_cli
