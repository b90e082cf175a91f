// Makes a job of square matrices and of equally large vectors, for benchmarks of whole steps. Pure
// functions; any thread.
#ifndef KAON_TESTS_BENCHMARK_LARGE_JOB_H_
#define KAON_TESTS_BENCHMARK_LARGE_JOB_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/kaon/client.h"
#include "tests/benchmark/loopback_job.h"

namespace kaon::benchmark {

inline constexpr uint64_t kMatrixSide = 2048;

inline ParameterGroup Group(const std::string& name, Rule rule) {
  ParameterGroup group;
  group.name = name;
  group.rule = rule;
  group.lr = 1e-3;
  return group;
}

inline void AddParameter(JobDefinition& job, const std::string& group,
                         std::vector<uint64_t> shape) {
  ParameterSpec parameter;
  parameter.name = absl::StrCat(group, job.parameters.size());
  parameter.shape = std::move(shape);
  parameter.group = group;
  job.parameters.push_back(parameter);
}

// kHalfMuon: half of the elements in square matrices for Muon, half for AdamW. kAdamW: all elements
// for AdamW. AdamW's arithmetic takes about as long as a transfer, so no stage hides the others.
enum class Rules { kHalfMuon, kAdamW };

inline JobDefinition LargeJob(Rules rules, uint64_t million_elements, int workers) {
  JobDefinition job;
  job.name = "large";
  job.world_size = workers;
  job.groups = {Group("adamw", Rule::kAdamW)};
  if (rules == Rules::kHalfMuon) job.groups.push_back(Group("muon", Rule::kMuon));
  const uint64_t half = (million_elements << 20) / 2;
  const uint64_t matrices = std::max<uint64_t>(1, half / (kMatrixSide * kMatrixSide));
  for (uint64_t i = 0; i < matrices; ++i) {
    AddParameter(job, rules == Rules::kHalfMuon ? "muon" : "adamw", {kMatrixSide, kMatrixSide});
    AddParameter(job, "adamw", {kMatrixSide * kMatrixSide});
  }
  return job;
}

// Returns servers with room for the job on each shard: weights, gradients, two moments, and the
// memory of orthogonalization.
inline LoopbackOptions LargeServers(int shards, uint64_t million_elements) {
  LoopbackOptions servers;
  servers.shards = shards;
  // One parameter of each rule, or more.
  constexpr uint64_t kLeast = 2 * kMatrixSide * kMatrixSide >> 20;
  servers.host_memory_bytes = (std::max(million_elements, kLeast) + 2) * (uint64_t{32} << 20);
  return servers;
}

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_LARGE_JOB_H_
