#include "server/admin_cli/backend_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/cpu/muon_step.h"
#include "server/admin_cli/table.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;

namespace {

// Matrices of one shape that are orthogonalized in the same way.
struct MatrixKey {
  std::string group;
  uint64_t rows = 0;
  uint64_t cols = 0;
  // True: several matrices concurrently, one per thread. False: one matrix at a time, by all
  // threads.
  bool is_batched = false;

  bool operator<(const MatrixKey& other) const {
    return std::tie(group, rows, cols, is_batched) <
           std::tie(other.group, other.rows, other.cols, other.is_batched);
  }
};

struct Matrices {
  uint64_t parameters = 0;
  uint64_t matrices = 0;
  std::set<uint32_t> shards;
};

// Splits "cpu/amx" at the slash. A plugin has its own matrix products and no slash.
std::pair<std::string, std::string> NameAndGemm(const std::string& backend) {
  return absl::StrSplit(backend, absl::MaxSplits('/', 1));
}

// Returns "bfloat16" for NEWTON_SCHULZ_DTYPE_BFLOAT16.
std::string DTypeWord(v1::NewtonSchulzDType dtype) {
  return absl::AsciiStrToLower(
      absl::StripPrefix(v1::NewtonSchulzDType_Name(dtype), "NEWTON_SCHULZ_DTYPE_"));
}

bool IsBatched(const v1::ParameterRow& row) {
  uint64_t count = 0;
  bool are_small = true;
  for (const v1::MatrixBlocks& blocks : row.blocks()) {
    count += blocks.count();
    are_small = are_small && blocks.rows() * blocks.cols() <= kernels::kSmallMatrixElements;
  }
  return count > 1 && are_small;
}

std::map<MatrixKey, Matrices> MatricesOf(const std::vector<v1::ParameterRow>& parameters) {
  std::map<MatrixKey, Matrices> table;
  for (const v1::ParameterRow& row : parameters) {
    const bool is_batched = IsBatched(row);
    std::set<MatrixKey> seen;
    for (const v1::MatrixBlocks& blocks : row.blocks()) {
      const MatrixKey key = {row.placement().group(), blocks.rows(), blocks.cols(), is_batched};
      Matrices& matrices = table[key];
      matrices.matrices += blocks.count();
      matrices.shards.insert(row.placement().shard());
      if (seen.insert(key).second) ++matrices.parameters;
    }
  }
  return table;
}

Json MatrixJson(const BackendFacts& facts, const MatrixKey& key, const Matrices& matrices) {
  Json row = {{"group", key.group},
              {"rows", key.rows},
              {"cols", key.cols},
              {"parameters", matrices.parameters},
              {"matrices", matrices.matrices},
              {"shards", matrices.shards}};
  const auto& groups = facts.job.definition().groups();
  const auto group =
      std::find_if(groups.begin(), groups.end(),
                   [&key](const v1::ParameterGroup& one) { return one.name() == key.group; });
  if (group == groups.end()) return row;
  const v1::NewtonSchulzOptions& options = group->muon().newton_schulz();
  // A square matrix gains nothing from Gram form (kernels/orthogonalize).
  const bool is_gram = options.form() == v1::NEWTON_SCHULZ_FORM_GRAM && key.rows != key.cols;
  row["form"] = is_gram ? "gram" : "standard";
  row["restarts"] = Json::array();
  if (is_gram) row["restarts"] = options.gram_restarts();
  row["dtype"] = DTypeWord(group->muon().ns_dtype());
  row["steps"] = group->muon().ns_steps();
  row["batched"] = key.is_batched;
  return row;
}

Json ShardJson(const v1::ShardStatus& shard) {
  const auto [name, gemm] = NameAndGemm(shard.description().backend());
  Json row = {{"shard", shard.shard()},
              {"address", shard.address()},
              {"connected", shard.connected()},
              {"backend", name},
              {"gemm", gemm},
              {"isa", shard.description().instruction_set()},
              {"threads", shard.description().compute_threads()},
              {"device_class", shard.description().device_class()},
              {"memory_tier", shard.description().memory_tier()},
              {"capacity_bytes", shard.description().capacity_bytes()},
              {"build", shard.description().build()}};
  if (shard.has_description()) return row;
  row["threads"] = nullptr;
  row["capacity_bytes"] = nullptr;
  return row;
}

Json ProductJson(uint32_t shard, const v1::ProductForm& product) {
  return {{"shard", shard},   {"dtype", product.dtype()}, {"n", product.n()},
          {"k", product.k()}, {"batch", product.batch()}, {"form", product.form()}};
}

std::string Cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_array()) {
    return value.empty() ? "-" : absl::StrJoin(value, ",", [](std::string* out, const Json& one) {
      absl::StrAppend(out, one.dump());
    });
  }
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_string()) return value.dump();
  return value.get<std::string>().empty() ? "-" : value.get<std::string>();
}

std::string TableOf(const Json& rows, const std::vector<std::pair<std::string, Column>>& columns) {
  std::vector<Column> titles;
  for (const auto& [key, column] : columns) titles.push_back(column);
  Table table(std::move(titles));
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [key, column] : columns) cells.push_back(Cell(row.value(key, Json())));
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

}  // namespace

Json BackendJson(const BackendFacts& facts) {
  Json json = {{"job", facts.status.job()},
               {"shards", Json::array()},
               {"matrices", Json::array()},
               {"products", Json::array()}};
  for (const v1::ShardStatus& shard : facts.status.shards()) {
    json["shards"].push_back(ShardJson(shard));
    for (const v1::ProductForm& product : shard.description().product_forms()) {
      json["products"].push_back(ProductJson(shard.shard(), product));
    }
  }
  for (const auto& [key, matrices] : MatricesOf(facts.parameters)) {
    json["matrices"].push_back(MatrixJson(facts, key, matrices));
  }
  return json;
}

std::string BackendText(const BackendFacts& facts) {
  constexpr Align kRight = Align::kRight;
  Json json = BackendJson(facts);
  for (Json& shard : json["shards"]) {
    Json& capacity = shard["capacity_bytes"];
    if (!capacity.is_null()) capacity = Bytes(capacity.get<uint64_t>());
  }
  std::string text = TableOf(json["shards"], {{"shard", {"SHARD", kRight}},
                                              {"address", {"ADDRESS"}},
                                              {"connected", {"CONNECTED"}},
                                              {"backend", {"BACKEND"}},
                                              {"gemm", {"GEMM"}},
                                              {"isa", {"ISA"}},
                                              {"threads", {"THREADS", kRight}},
                                              {"memory_tier", {"MEMORY"}},
                                              {"capacity_bytes", {"CAPACITY", kRight}},
                                              {"device_class", {"DEVICE"}},
                                              {"build", {"BUILD"}}});
  absl::StrAppend(&text, "\n",
                  TableOf(json["matrices"], {{"group", {"GROUP"}},
                                             {"rows", {"ROWS", kRight}},
                                             {"cols", {"COLS", kRight}},
                                             {"form", {"FORM"}},
                                             {"restarts", {"RESTARTS"}},
                                             {"dtype", {"DTYPE"}},
                                             {"steps", {"STEPS", kRight}},
                                             {"batched", {"BATCHED"}},
                                             {"matrices", {"MATRICES", kRight}},
                                             {"parameters", {"PARAMETERS", kRight}},
                                             {"shards", {"SHARDS"}}}));
  if (json["products"].empty()) return text;
  absl::StrAppend(&text, "\n",
                  TableOf(json["products"], {{"shard", {"SHARD", kRight}},
                                             {"dtype", {"DTYPE"}},
                                             {"n", {"N", kRight}},
                                             {"k", {"K", kRight}},
                                             {"batch", {"BATCH", kRight}},
                                             {"form", {"PRODUCT"}}}));
  return text;
}

}  // namespace kaon::admin_cli
