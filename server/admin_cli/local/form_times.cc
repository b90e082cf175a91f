#include "server/admin_cli/local/form_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"
#include "kernels/tensor.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {
namespace {

using kernels::NsDType;
using kernels::NsForm;

constexpr uint64_t kRows = 256;
constexpr uint64_t kCols[] = {512, 1024};
constexpr std::pair<NsDType, const char*> kDTypes[] = {{NsDType::kFloat32, "float32"},
                                                       {NsDType::kBFloat16, "bfloat16"},
                                                       {NsDType::kFloat16, "float16"}};
// Smallest ratio of the times at which Gram form counts as faster.
constexpr double kLeastGain = 1.05;

// Returns noise: a gradient of one value would have rank 1.
std::vector<float> Noise(uint64_t n) {
  std::vector<float> values(n);
  uint32_t random = 1;
  for (float& value : values) {
    random = random * 1664525u + 1013904223u;
    value = static_cast<float>(random >> 8) * 0x1p-23f - 1.0f;
  }
  return values;
}

// Buffers of one parameter for repeated updates.
class MeasuredMatrix {
 public:
  MeasuredMatrix(kernels::Backend& backend, uint64_t cols)
      : shape_({kRows, cols}),
        weight_(backend, std::vector<float>(kRows * cols)),
        state_(backend, std::vector<float>(kRows * cols)),
        grad_(backend, Noise(kRows * cols)) {}

  void Update(kernels::Backend& backend, NsDType dtype, NsForm form) {
    kernels::MuonConfig config;
    config.newton_schulz.dtype = dtype;
    config.newton_schulz.form = form;
    config.newton_schulz.steps = 5;
    if (form == NsForm::kGram) config.newton_schulz.gram_restarts = {2, 3};
    const kernels::Region slot = state_.region();
    backend.ApplyUpdate(config, {.lr = 1e-3, .clip_factor = 1, .t = ++updates_}, shape_,
                        {.grad = grad_.region(),
                         .param = weight_.region(),
                         .new_param = weight_.region(),
                         .state = {&slot, 1}});
  }

 private:
  std::vector<uint64_t> shape_;
  kernels::Tensor weight_;
  kernels::Tensor state_;
  kernels::Tensor grad_;
  int64_t updates_ = 0;
};

// Milliseconds, rounded to microseconds.
double Milliseconds(absl::Duration time) {
  return std::round(absl::ToDoubleMicroseconds(time)) / 1e3;
}

const char* FasterForm(const FormTime& row) {
  return row.standard >= kLeastGain * row.gram ? "gram" : "standard";
}

}  // namespace

FormTimes MeasureForms(kernels::Backend& backend, absl::Duration at_least,
                       absl::FunctionRef<absl::Time()> now) {
  FormTimes times{backend.name(), {}};
  std::vector<MeasuredMatrix> matrices;
  for (const uint64_t cols : kCols) {
    matrices.emplace_back(backend, cols);
    for (const auto& [dtype, name] : kDTypes) times.rows.push_back({name, kRows, cols});
  }
  const absl::Time end = now() + at_least;
  // Alternate forms and rows, so that other work on the machine slows all of them.
  for (int round = 0; round < 2 || now() < end; ++round) {
    for (size_t i = 0; i < times.rows.size(); ++i) {
      FormTime& row = times.rows[i];
      const auto time = [&](NsForm form, absl::Duration& least) {
        const absl::Time start = now();
        matrices[i / std::size(kDTypes)].Update(backend, kDTypes[i % std::size(kDTypes)].first,
                                                form);
        least = std::min(least, now() - start);
      };
      time(NsForm::kStandard, row.standard);
      time(NsForm::kGram, row.gram);
    }
  }
  return times;
}

Json FormTimesJson(const FormTimes& times) {
  Json rows = Json::array();
  for (const FormTime& row : times.rows) {
    rows.push_back({{"dtype", row.dtype},
                    {"rows", row.rows},
                    {"cols", row.cols},
                    {"standard_ms", Milliseconds(row.standard)},
                    {"gram_ms", Milliseconds(row.gram)},
                    {"faster", FasterForm(row)}});
  }
  return {{"backend", times.backend}, {"form_times", std::move(rows)}};
}

std::string FormTimesText(const FormTimes& times) {
  Table table({{"DTYPE"},
               {"ROWS", Align::kRight},
               {"COLS", Align::kRight},
               {"STANDARD_MS", Align::kRight},
               {"GRAM_MS", Align::kRight},
               {"FASTER"}});
  for (const FormTime& row : times.rows) {
    table.AddRow({row.dtype, absl::StrCat(row.rows), absl::StrCat(row.cols),
                  absl::StrFormat("%.3f", Milliseconds(row.standard)),
                  absl::StrFormat("%.3f", Milliseconds(row.gram)), FasterForm(row)});
  }
  return absl::StrCat(table.ToString(), times.backend, " on this machine\n");
}

}  // namespace kaon::admin_cli
