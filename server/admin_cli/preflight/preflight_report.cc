#include "server/admin_cli/preflight/preflight_report.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/admin_cli/table.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;

namespace {

using preflight::GroupNeeds;
using preflight::LargestMatrix;
using preflight::ShardOffer;
using preflight::ShardVerdict;

uint64_t SumOf(const GroupNeeds& group) {
  return group.weight_bytes + group.next_weight_bytes + group.state_bytes + group.sum_bytes;
}

Json GroupJson(const GroupNeeds& group) {
  return {{"group", group.group},
          {"rule", group.rule},
          {"parameters", group.parameters},
          {"elements", group.elements},
          {"weight_bytes", group.weight_bytes},
          {"next_weight_bytes", group.next_weight_bytes},
          {"state_bytes", group.state_bytes},
          {"gradient_sum_bytes", group.sum_bytes}};
}

Json ShardJson(uint32_t shard, const ShardVerdict& verdict) {
  const ShardOffer& offer = verdict.offer;
  const shard::ShardNeeds& needs = verdict.needs;
  return {{"shard", shard},
          {"address", offer.address},
          {"parameters", needs.parameters.size()},
          {"elements", verdict.elements},
          {"tensor_bytes", needs.tensor_bytes},
          {"workspace_bytes", needs.workspace_bytes},
          {"gradient_sum_bytes", needs.sum_bytes},
          {"nvme_bytes", needs.nvme_bytes},
          {"reserved_bytes", needs.reserved_bytes},
          {"used_bytes", needs.used_bytes()},
          {"capacity_bytes", offer.memory.capacity_bytes},
          {"durability", offer.durability},
          {"disk_bytes", verdict.disk_bytes},
          {"backend", offer.backend},
          {"threads", offer.threads},
          {"fits", verdict.refusal.ok()},
          {"problem", std::string(verdict.refusal.message())}};
}

uint64_t StagingOf(const preflight::Report& report) {
  uint64_t staging = report.shards.front().offer.memory.staging_bytes;
  for (const ShardVerdict& verdict : report.shards) {
    staging = std::min(staging, verdict.offer.memory.staging_bytes);
  }
  return staging / std::max<uint32_t>(1, report.world_size);
}

std::string GroupsText(const preflight::Report& report) {
  Table table({{"GROUP"},
               {"RULE"},
               {"PARAMETERS", Align::kRight},
               {"ELEMENTS", Align::kRight},
               {"WEIGHTS", Align::kRight},
               {"NEXT WEIGHTS", Align::kRight},
               {"STATE", Align::kRight},
               {"GRADIENT SUMS", Align::kRight},
               {"ALL", Align::kRight}});
  std::vector<GroupNeeds> rows = report.groups;
  rows.push_back(report.total);
  rows.back().group = "all";
  for (const GroupNeeds& row : rows) {
    table.AddRow({row.group, OrDash(row.rule), absl::StrCat(row.parameters),
                  absl::StrCat(row.elements), Bytes(row.weight_bytes), Bytes(row.next_weight_bytes),
                  Bytes(row.state_bytes), Bytes(row.sum_bytes), Bytes(SumOf(row))});
  }
  return table.ToString();
}

std::string ShardsText(const preflight::Report& report, bool wide) {
  std::vector<Column> columns = {
      {"SHARD", Align::kRight},         {"TENSORS", Align::kRight},  {"WORKSPACE", Align::kRight},
      {"GRADIENT SUMS", Align::kRight}, {"RESERVED", Align::kRight}, {"NEEDED", Align::kRight},
      {"CAPACITY", Align::kRight},      {"DISK", Align::kRight},     {"FITS"}};
  if (wide) {
    columns.insert(columns.end(), {{"ADDRESS"},
                                   {"PARAMETERS", Align::kRight},
                                   {"ELEMENTS", Align::kRight},
                                   {"STAGING", Align::kRight},
                                   {"NVME", Align::kRight},
                                   {"DURABILITY"},
                                   {"BACKEND"},
                                   {"THREADS", Align::kRight}});
  }
  Table table(columns);
  for (size_t i = 0; i < report.shards.size(); ++i) {
    const ShardVerdict& verdict = report.shards[i];
    const shard::ShardNeeds& needs = verdict.needs;
    const ShardOffer& offer = verdict.offer;
    std::vector<std::string> row = {absl::StrCat(i),
                                    Bytes(needs.tensor_bytes),
                                    Bytes(needs.workspace_bytes),
                                    Bytes(needs.sum_bytes),
                                    Bytes(needs.reserved_bytes),
                                    Bytes(needs.used_bytes()),
                                    Bytes(offer.memory.capacity_bytes),
                                    Bytes(verdict.disk_bytes),
                                    verdict.refusal.ok() ? "yes" : "no"};
    if (wide) {
      row.insert(row.end(), {OrDash(offer.address), absl::StrCat(needs.parameters.size()),
                             absl::StrCat(verdict.elements), Bytes(offer.memory.staging_bytes),
                             Bytes(needs.nvme_bytes), offer.durability, offer.backend,
                             absl::StrCat(offer.threads)});
    }
    table.AddRow(row);
  }
  return table.ToString();
}

std::string Text(const preflight::Report& report, bool wide) {
  std::string text =
      absl::StrCat("job ", report.job, ", ", report.world_size, " workers, ", report.shards.size(),
                   " shards\n", GroupsText(report), "\n", ShardsText(report, wide), "\n");
  const LargestMatrix& matrix = report.largest_matrix;
  if (matrix.rows > 0) {
    absl::StrAppend(&text, "largest matrix: ", matrix.rows, " x ", matrix.cols, " of parameter ",
                    matrix.parameter, "\n");
  }
  absl::StrAppend(&text, "network of a worker and step: ", Bytes(report.push_bytes), " up, ",
                  Bytes(report.pull_bytes), " down as fp32, half of it as bf16\n",
                  "staging of a worker: ", Bytes(StagingOf(report)), "\n");
  if (!report.running_job.empty()) {
    absl::StrAppend(&text, "the cluster runs job ", report.running_job,
                    ", which must end before another one is registered\n");
  }
  if (preflight::JobFits(report).ok()) absl::StrAppend(&text, "the job fits\n");
  return text;
}

}  // namespace

Json PreflightJson(const preflight::Report& report) {
  Json json = {{"job", report.job},
               {"world_size", report.world_size},
               {"fits", preflight::JobFits(report).ok()},
               {"running_job", report.running_job},
               {"groups", Json::array()},
               {"total", GroupJson(report.total)},
               {"shards", Json::array()}};
  for (const GroupNeeds& group : report.groups) json["groups"].push_back(GroupJson(group));
  json["total"].erase("group");
  json["total"].erase("rule");
  for (size_t i = 0; i < report.shards.size(); ++i) {
    json["shards"].push_back(ShardJson(static_cast<uint32_t>(i), report.shards[i]));
  }
  const LargestMatrix& matrix = report.largest_matrix;
  json["largest_matrix"] =
      matrix.rows == 0
          ? Json()
          : Json({{"parameter", matrix.parameter}, {"rows", matrix.rows}, {"cols", matrix.cols}});
  json["push_bytes"] = report.push_bytes;
  json["pull_bytes"] = report.pull_bytes;
  json["staging_bytes_per_worker"] = StagingOf(report);
  return json;
}

std::string PreflightText(const preflight::Report& report) { return Text(report, false); }

std::string PreflightWideText(const preflight::Report& report) { return Text(report, true); }

}  // namespace kaon::admin_cli
