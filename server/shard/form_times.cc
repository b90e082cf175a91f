#include "server/shard/form_times.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "job/form_choice.h"
#include "kernels/grad_view.h"
#include "kernels/optimizer_rule.h"
#include "proto/chunk_memory.h"

namespace kaon::shard {
namespace {

using kernels::NsDType;
using kernels::NsForm;

constexpr uint64_t kRows = 256;
constexpr uint64_t kWidths[] = {2, 4};
constexpr std::pair<NsDType, v1::NewtonSchulzDType> kDTypes[] = {
    {NsDType::kFloat32, v1::NEWTON_SCHULZ_DTYPE_FLOAT32},
    {NsDType::kBFloat16, v1::NEWTON_SCHULZ_DTYPE_BFLOAT16},
    {NsDType::kFloat16, v1::NEWTON_SCHULZ_DTYPE_FLOAT16}};
constexpr uint32_t kSteps = 5;

// Memory of one parameter, stepped again and again.
class ProbedMatrix {
 public:
  explicit ProbedMatrix(uint64_t cols)
      : shape_({kRows, cols}), weight_(kRows * cols), state_(kRows * cols), grad_(kRows * cols) {
    // As spread as noise: a gradient of one value would be of rank 1.
    uint32_t random = 1;
    for (float& value : grad_) {
      random = random * 1664525u + 1013904223u;
      value = static_cast<float>(random >> 8) * 0x1p-23f - 1.0f;
    }
  }

  void Step(kernels::Backend& backend, NsDType dtype, NsForm form) {
    kernels::MuonConfig config;
    config.newton_schulz.dtype = dtype;
    config.newton_schulz.form = form;
    config.newton_schulz.steps = kSteps;
    if (form == NsForm::kGram) {
      const std::vector<uint32_t> restarts = job::ChosenRestarts(kSteps);
      config.newton_schulz.gram_restarts.assign(restarts.begin(), restarts.end());
    }
    const absl::Span<std::byte> slots[] = {
        {reinterpret_cast<std::byte*>(state_.data()), state_.size() * sizeof(float)}};
    backend.ApplyUpdate(
        config, {.lr = 1e-3, .clip_factor = 1, .t = ++updates_}, shape_,
        {.grad = grad_, .param = weight_, .new_param = absl::MakeSpan(weight_), .state = slots});
  }

 private:
  const std::vector<uint64_t> shape_;
  std::vector<float> weight_;
  std::vector<float> state_;
  std::vector<float> grad_;
  int64_t updates_ = 0;
};

// One row of the table.
struct Probe {
  ProbedMatrix* matrix;
  NsDType dtype;
  // The least, in standard and in Gram form.
  absl::Duration least[2] = {absl::InfiniteDuration(), absl::InfiniteDuration()};
  v1::NewtonSchulzFormTime row;
};

std::vector<Probe> ProbesOf(std::vector<std::unique_ptr<ProbedMatrix>>& matrices) {
  std::vector<Probe> probes;
  for (const uint64_t width : kWidths) {
    matrices.push_back(std::make_unique<ProbedMatrix>(width * kRows));
    for (const auto& [dtype, shown] : kDTypes) {
      Probe& probe = probes.emplace_back();
      probe.matrix = matrices.back().get();
      probe.dtype = dtype;
      probe.row.set_dtype(shown);
      probe.row.set_rows(kRows);
      probe.row.set_cols(width * kRows);
    }
  }
  return probes;
}

// By turns, so that what else runs here meets all of them: both forms side by side, and all rows
// again and again. The first round touches memory and has the library prepare its products.
void TimeUpdates(kernels::Backend& backend, absl::Time end, absl::FunctionRef<absl::Time()> now,
                 std::vector<Probe>& probes) {
  while (true) {
    for (Probe& probe : probes) {
      for (const NsForm form : {NsForm::kStandard, NsForm::kGram}) {
        const absl::Time start = now();
        if (start >= end) return;
        probe.matrix->Step(backend, probe.dtype, form);
        absl::Duration& least = probe.least[static_cast<int>(form)];
        least = std::min(least, now() - start);
      }
    }
  }
}

}  // namespace

bool ShouldMeasureForms(const v1::ShardConfig& config) {
  return config.measure_forms() && config.gemm() != "reference";
}

std::vector<v1::NewtonSchulzFormTime> MeasureForms(kernels::Backend& backend,
                                                   absl::Duration at_most,
                                                   absl::FunctionRef<absl::Time()> now) {
  const absl::Time end = now() + at_most;
  std::vector<v1::NewtonSchulzFormTime> times;
  {
    std::vector<std::unique_ptr<ProbedMatrix>> matrices;
    std::vector<Probe> probes = ProbesOf(matrices);
    TimeUpdates(backend, end, now, probes);
    for (Probe& probe : probes) {
      if (probe.least[1] == absl::InfiniteDuration()) continue;
      probe.row.set_standard_seconds(absl::ToDoubleSeconds(probe.least[0]));
      probe.row.set_gram_seconds(absl::ToDoubleSeconds(probe.least[1]));
      times.push_back(std::move(probe.row));
    }
  }
  proto::GiveBackChunkMemory();
  return times;
}

}  // namespace kaon::shard
