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

}  // namespace kaon::admin_cli
