#include "server/admin_cli/parameter_command.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/admin_cli/table.h"
#include "server/monitor/sample_csv.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;

namespace {

Json Home(const std::string& name, const v1::ParameterPlacement& placement) {
  return {{"parameter_id", placement.parameter_id()},
          {"name", name},
          {"group", placement.group()},
          {"shard", placement.shard()}};
}

// Keeps the documented order.
Json Norms(const v1::ParameterStats& stats) {
  Json norms = {{"weight_norm", stats.weight_norm()}};
  norms["grad_norm"] = stats.has_grad_norm() ? Json(stats.grad_norm()) : Json();
  norms["grad_zeros"] = stats.has_grad_zeros() ? Json(stats.grad_zeros()) : Json();
  norms["update_norm"] = stats.has_update_norm() ? Json(stats.update_norm()) : Json();
  norms["update_to_weight_ratio"] =
      stats.has_update_to_weight_ratio() ? Json(stats.update_to_weight_ratio()) : Json();
  norms["momentum_norm"] = stats.has_momentum_norm() ? Json(stats.momentum_norm()) : Json();
  norms["orthogonality_error"] =
      stats.has_orthogonality_error() ? Json(stats.orthogonality_error()) : Json();
  norms["updates_applied"] = stats.updates_applied();
  norms["newton_schulz_updates"] = stats.newton_schulz_updates();
  norms["non_finite_steps"] = stats.non_finite_steps();
  norms["non_finite_elements"] = stats.non_finite_elements();
  return norms;
}

std::string Cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_number_float()) return absl::StrFormat("%.6g", value.get<double>());
  return value.dump();
}

std::string Heading(const std::string& name, const v1::ParameterPlacement& placement) {
  return absl::StrCat("parameter ", name, " (id ", placement.parameter_id(), ", group ",
                      OrDash(placement.group()), ", shard ", placement.shard(), ")\n");
}

std::vector<float> ValuesOf(const v1::TensorSlice& slice) {
  std::vector<float> values(slice.values().size() / sizeof(float));
  std::memcpy(values.data(), slice.values().data(), values.size() * sizeof(float));
  return values;
}

// Keeps the documented order.
Json ValuesOf(const v1::ParameterSample& sample) {
  const auto value = [](bool has, double known) { return has ? Json(known) : Json(); };
  return {{"step", sample.step()},
          {"weight_norm", sample.weight_norm()},
          {"grad_norm", value(sample.has_grad_norm(), sample.grad_norm())},
          {"update_norm", value(sample.has_update_norm(), sample.update_norm())},
          {"update_to_weight_ratio",
           value(sample.has_update_to_weight_ratio(), sample.update_to_weight_ratio())},
          {"orthogonality_error",
           value(sample.has_orthogonality_error(), sample.orthogonality_error())},
          {"stable_rank", value(sample.has_stable_rank(), sample.stable_rank())}};
}

}  // namespace

Json ParameterStatsJson(const NamedStats& stats) {
  Json json = Home(stats.name, stats.answer.placement());
  const Json norms = Norms(stats.answer.stats());
  for (const auto& [key, value] : norms.items()) json[key] = value;
  return json;
}

std::string ParameterStatsText(const NamedStats& stats) {
  Table table({{"STATISTIC"}, {"VALUE", Align::kRight}});
  const Json norms = Norms(stats.answer.stats());
  for (const auto& [key, value] : norms.items()) {
    table.AddRow({key, Cell(value)});
  }
  return Heading(stats.name, stats.answer.placement()) + table.ToString();
}

Json ParameterDiagnosticsJson(const NamedDiagnostics& diagnostics) {
  const v1::ParameterDiagnostics& facts = diagnostics.answer.diagnostics();
  Json json = Home(diagnostics.name, diagnostics.answer.placement());
  json["rule"] = facts.rule();
  json["backend"] = facts.backend();
  json["tensors"] = Json::array();
  for (const v1::StoredTensor& tensor : facts.tensors()) {
    json["tensors"].push_back(
        {{"name", tensor.name()},
         {"dtype", tensor.dtype()},
         {"shape", std::vector<uint64_t>(tensor.shape().begin(), tensor.shape().end())},
         {"bytes", tensor.bytes()},
         {"tier", tensor.tier()},
         {"first_used_step", tensor.first_used_step()}});
  }
  return json;
}

std::string ParameterDiagnosticsText(const NamedDiagnostics& diagnostics) {
  const v1::ParameterDiagnostics& facts = diagnostics.answer.diagnostics();
  Table table({{"TENSOR"},
               {"DTYPE"},
               {"SHAPE"},
               {"BYTES", Align::kRight},
               {"TIER"},
               {"FIRST USED", Align::kRight}});
  for (const v1::StoredTensor& tensor : facts.tensors()) {
    table.AddRow(
        {tensor.name(), OrDash(tensor.dtype()), absl::StrJoin(tensor.shape(), "x"),
         Bytes(tensor.bytes()), tensor.tier(),
         tensor.first_used_step() == 0 ? "-" : absl::StrCat("step ", tensor.first_used_step())});
  }
  return absl::StrCat(Heading(diagnostics.name, diagnostics.answer.placement()), "rule ",
                      OrDash(facts.rule()), ", backend ", OrDash(facts.backend()), "\n",
                      table.ToString());
}

Json ParameterSliceJson(const NamedSlice& slice) {
  const v1::TensorSlice& read = slice.answer.slice();
  Json json = Home(slice.name, slice.answer.placement());
  json["tensor"] = slice.tensor;
  json["step"] = read.step();
  json["shape"] = std::vector<uint64_t>(read.shape().begin(), read.shape().end());
  json["offset"] = slice.offset;
  json["values"] = Json::array();
  for (const float value : ValuesOf(read)) {
    json["values"].push_back(std::isfinite(value) ? Json(value) : Json());
  }
  json["crc32c"] = absl::StrFormat("%08x", read.crc32c());
  return json;
}

std::string ParameterSliceText(const NamedSlice& slice) {
  const v1::TensorSlice& read = slice.answer.slice();
  Table table({{"INDEX", Align::kRight}, {"VALUE", Align::kRight}});
  uint64_t index = slice.offset;
  for (const float value : ValuesOf(read)) {
    // Nine digits name one float32.
    table.AddRow({absl::StrCat(index++), absl::StrFormat("%.9g", value)});
  }
  return absl::StrCat(Heading(slice.name, slice.answer.placement()), slice.tensor, " of ",
                      absl::StrJoin(read.shape(), "x"), " after step ", read.step(), "\n",
                      table.ToString());
}

Json ParameterHistoryJson(const NamedHistory& history) {
  Json json = Home(history.name, history.answer.placement());
  json["every_steps"] = history.answer.history().every_steps();
  json["samples"] = Json::array();
  for (const v1::ParameterSample& sample : history.answer.history().samples()) {
    json["samples"].push_back(ValuesOf(sample));
  }
  return json;
}

std::string ParameterHistoryText(const NamedHistory& history) {
  Table table({{"STEP", Align::kRight},
               {"WEIGHT NORM", Align::kRight},
               {"GRAD NORM", Align::kRight},
               {"UPDATE NORM", Align::kRight},
               {"UPDATE/WEIGHT", Align::kRight},
               {"ORTHOGONALITY", Align::kRight},
               {"STABLE RANK", Align::kRight}});
  for (const v1::ParameterSample& sample : history.answer.history().samples()) {
    std::vector<std::string> cells;
    const Json values = ValuesOf(sample);
    for (const auto& [key, value] : values.items()) cells.push_back(Cell(value));
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(Heading(history.name, history.answer.placement()), "a sample every ",
                      history.answer.history().every_steps(),
                      " steps or more, since the shard started\n", table.ToString());
}

std::string ParameterHistoryCsv(const NamedHistory& history) {
  return monitor::SampleCsv(history.answer.history());
}

}  // namespace kaon::admin_cli
