#include "server/coordinator/cluster_view.h"

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/rule_config.h"
#include "kernels/optimizer_rule.h"
#include "proto/text.h"

namespace kaon::coordinator {

int ClusterView::Newest() const {
  int newest = -1;
  for (int i = 0; i < shards.size(); ++i) {
    if (!shards[i].ok()) continue;
    if (newest < 0 ||
        shards[i]->state().applied_position() > shards[newest]->state().applied_position()) {
      newest = i;
    }
  }
  return newest;
}

absl::Status ClusterView::CheckVotes(uint32_t shard) const {
  if (shard >= shards.size() || !shards[shard].ok()) return absl::OkStatus();
  const std::string& why = shards[shard]->journal().read_only_reason();
  if (why.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("shard ", shard, ": ", why));
}

absl::StatusOr<v1::JobDescription> ClusterView::DescribeJob(absl::string_view job) const {
  const int newest = Newest();
  if (newest < 0 || !shards[newest]->state().has_registration()) {
    for (int i = 0; i < shards.size(); ++i) {
      if (!shards[i].ok()) {
        return absl::UnavailableError(
            absl::StrCat("shard ", i, " at ", addresses[i], ": ", shards[i].status().ToString()));
      }
    }
    return absl::NotFoundError(
        job.empty() ? "no job is registered"
                    : absl::StrCat("job \"", proto::Excerpt(job), "\": no job is registered"));
  }
  const v1::ShardState& state = shards[newest]->state();
  const std::string& name = state.registration().definition().name();
  if (!job.empty() && job != name) {
    return absl::NotFoundError(
        absl::StrCat("job \"", proto::Excerpt(job), "\": the job here is \"", name, "\""));
  }
  v1::JobDescription description;
  *description.mutable_definition() = state.registration().definition();
  *description.mutable_placement() = state.registration().placement();
  description.set_timeline(state.timeline());
  description.set_applied_step(state.applied_step());
  description.set_weights_loaded(state.weights_loaded());
  *description.mutable_requested() = state.registration().requested();
  *description.mutable_changed() = state.registration().changed();
  description.set_config_revision(state.config_revision());
  for (const std::string& address : addresses) description.add_shard_addresses(address);
  for (int i = 0; i < shards.size(); ++i) {
    if (!shards[i].ok() || shards[i]->state().data_loss().empty()) continue;
    description.set_stopped_reason(
        absl::StrCat("DATA_LOSS: shard ", i, ": ", shards[i]->state().data_loss()));
    break;
  }
  return description;
}

v1::JobRow ClusterView::RowOf(const v1::JobDescription& job) {
  v1::JobRow row;
  row.set_job(job.definition().name());
  row.set_timeline(job.timeline());
  row.set_applied_step(job.applied_step());
  row.set_parameters(job.definition().parameters_size());
  uint64_t elements = 0;
  for (const v1::ParameterSpec& parameter : job.definition().parameters()) {
    elements += job::NumElements(parameter);
  }
  row.set_elements(elements);
  row.set_workers(job.definition().world_size());
  row.set_stopped_reason(job.stopped_reason());
  return row;
}

namespace {

// Fills in how the row's group updates its parameter.
void FillRule(const v1::ParameterGroup& group, v1::ParameterRow& row) {
  row.set_rule(group.rule());
  row.set_clip_exempt(job::IsClipExempt(group));
  const std::vector<uint64_t> shape(row.spec().shape().begin(), row.spec().shape().end());
  const kernels::RuleConfig rule = job::RuleConfigOf(group, row.spec(), row.placement());
  for (const kernels::ScaledMatrices& matrices : kernels::OrthogonalizedMatrices(rule, shape)) {
    v1::MatrixBlocks& blocks = *row.add_blocks();
    blocks.set_rows(static_cast<uint64_t>(matrices.rows));
    blocks.set_cols(static_cast<uint64_t>(matrices.cols));
    blocks.set_count(static_cast<uint64_t>(matrices.count));
    blocks.set_scale(matrices.scale);
  }
}

}  // namespace

std::vector<v1::ParameterRow> ClusterView::Rows(
    const v1::JobDescription& job, uint32_t first, uint32_t limit,
    const std::function<bool(const std::string&)>& wanted, uint32_t* next) const {
  absl::flat_hash_map<uint32_t, const v1::ParameterState*> state_of;
  for (const auto& shard : shards) {
    if (!shard.ok()) continue;
    for (const v1::ParameterState& state : shard->parameters()) {
      state_of[state.parameter_id()] = &state;
    }
  }
  const v1::JobDefinition& definition = job.definition();
  const uint32_t end = definition.parameters_size();
  std::vector<v1::ParameterRow> rows;
  uint32_t id = first;
  for (; id < end && rows.size() < limit; ++id) {
    if (!wanted(definition.parameters(id).name())) continue;
    v1::ParameterRow& row = rows.emplace_back();
    *row.mutable_spec() = definition.parameters(id);
    *row.mutable_placement() = job.placement().parameters(id);
    const int group = job::GroupIndex(definition, row.placement().group());
    if (group >= 0) FillRule(definition.groups(group), row);
    if (const auto it = state_of.find(id); it != state_of.end()) *row.mutable_state() = *it->second;
  }
  *next = id;
  return rows;
}

void GatherCluster(const std::vector<std::unique_ptr<ShardLink>>& links,
                   std::vector<std::string> addresses, absl::Duration timeout,
                   std::function<void(ClusterView)> done) {
  struct Gathering {
    ClusterView view;
    std::function<void(ClusterView)> done;
    std::atomic<size_t> missing{0};
  };
  // Shared by the calls; the last one to answer passes the view on.
  auto gathering = std::make_shared<Gathering>();
  gathering->view.addresses = std::move(addresses);
  gathering->view.shards.resize(links.size(), absl::UnknownError("not answered"));
  gathering->done = std::move(done);
  gathering->missing = links.size();
  for (size_t i = 0; i < links.size(); ++i) {
    links[i]->DescribeShard({}, timeout,
                            [gathering, i](absl::StatusOr<v1::DescribeShardResponse> response) {
                              gathering->view.shards[i] = std::move(response);
                              if (--gathering->missing == 0) {
                                gathering->done(std::move(gathering->view));
                              }
                            });
  }
}

}  // namespace kaon::coordinator
