#include "server/shard/form_times.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "kernels/grad_view.h"
#include "kernels/optimizer_rule.h"
#include "kernels/steady_clock.h"

namespace kaon::shard {
namespace {

using kernels::NsDType;
using kernels::NsForm;

constexpr uint64_t kRows = 256;
constexpr uint64_t kWidths[] = {2, 4, 8};
constexpr std::pair<NsDType, v1::NewtonSchulzDType> kDTypes[] = {
    {NsDType::kFloat32, v1::NEWTON_SCHULZ_DTYPE_FLOAT32},
    {NsDType::kBFloat16, v1::NEWTON_SCHULZ_DTYPE_BFLOAT16}};
// Those that keep [N9] in bf16 (ADR 0024).
const std::vector<int> kRestarts = {2, 3};
// The first of them touches memory and has the library prepare its products.
constexpr int kRounds = 3;

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

  absl::Duration Step(kernels::Backend& backend, NsDType dtype, NsForm form) {
    kernels::MuonConfig config;
    config.newton_schulz.dtype = dtype;
    config.newton_schulz.form = form;
    if (form == NsForm::kGram) config.newton_schulz.gram_restarts = kRestarts;
    const absl::Span<std::byte> slots[] = {
        {reinterpret_cast<std::byte*>(state_.data()), state_.size() * sizeof(float)}};
    const absl::Time start = SteadyNow();
    backend.ApplyUpdate(
        config, {.lr = 1e-3, .clip_factor = 1, .t = ++updates_}, shape_,
        {.grad = grad_, .param = weight_, .new_param = absl::MakeSpan(weight_), .state = slots});
    return SteadyNow() - start;
  }

 private:
  const std::vector<uint64_t> shape_;
  std::vector<float> weight_;
  std::vector<float> state_;
  std::vector<float> grad_;
  int64_t updates_ = 0;
};

}  // namespace

std::vector<v1::NewtonSchulzFormTime> MeasureForms(kernels::Backend& backend,
                                                   absl::Duration at_most) {
  const absl::Time end = SteadyNow() + at_most;
  std::vector<v1::NewtonSchulzFormTime> times;
  for (const uint64_t width : kWidths) {
    ProbedMatrix matrix(width * kRows);
    for (const auto& [dtype, shown] : kDTypes) {
      absl::Duration standard = absl::InfiniteDuration();
      absl::Duration gram = absl::InfiniteDuration();
      // By turns, so that both have what else runs here beside them.
      for (int round = 0; round < kRounds; ++round) {
        if (SteadyNow() >= end) return times;
        standard = std::min(standard, matrix.Step(backend, dtype, NsForm::kStandard));
        gram = std::min(gram, matrix.Step(backend, dtype, NsForm::kGram));
      }
      v1::NewtonSchulzFormTime& time = times.emplace_back();
      time.set_dtype(shown);
      time.set_rows(kRows);
      time.set_cols(width * kRows);
      time.set_standard_seconds(absl::ToDoubleSeconds(standard));
      time.set_gram_seconds(absl::ToDoubleSeconds(gram));
    }
  }
  return times;
}

}  // namespace kaon::shard
