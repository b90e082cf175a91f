#include "server/shard/form_times.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/types/span.h"
#include "kernels/grad_view.h"
#include "kernels/optimizer_rule.h"

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
constexpr int kRestarts[] = {2, 3};
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

  void Step(kernels::Backend& backend, NsDType dtype, NsForm form) {
    kernels::MuonConfig config;
    config.newton_schulz.dtype = dtype;
    config.newton_schulz.form = form;
    if (form == NsForm::kGram)
      config.newton_schulz.gram_restarts.assign(std::begin(kRestarts), std::end(kRestarts));
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

}  // namespace

std::vector<v1::NewtonSchulzFormTime> FormTimesFor(const v1::ShardConfig& config,
                                                   kernels::Backend& backend) {
  if (!config.measure_forms() || config.gemm() == "reference") return {};
  std::vector<v1::NewtonSchulzFormTime> times = MeasureForms(backend, kFormTimesTake);
  malloc_trim(0);
  return times;
}

std::vector<v1::NewtonSchulzFormTime> MeasureForms(kernels::Backend& backend,
                                                   absl::Duration at_most,
                                                   absl::FunctionRef<absl::Time()> now) {
  const absl::Time end = now() + at_most;
  std::vector<v1::NewtonSchulzFormTime> times;
  for (const uint64_t width : kWidths) {
    if (now() >= end) return times;
    ProbedMatrix matrix(width * kRows);
    for (const auto& [dtype, shown] : kDTypes) {
      // By turns, so that both have what else runs here beside them; the least of each.
      absl::Duration least[] = {absl::InfiniteDuration(), absl::InfiniteDuration()};
      for (int update = 0; update < 2 * kRounds; ++update) {
        const absl::Time start = now();
        if (start >= end) return times;
        const int form = update % 2;
        matrix.Step(backend, dtype, form == 0 ? NsForm::kStandard : NsForm::kGram);
        least[form] = std::min(least[form], now() - start);
      }
      v1::NewtonSchulzFormTime& time = times.emplace_back();
      time.set_dtype(shown);
      time.set_rows(kRows);
      time.set_cols(width * kRows);
      time.set_standard_seconds(absl::ToDoubleSeconds(least[0]));
      time.set_gram_seconds(absl::ToDoubleSeconds(least[1]));
    }
  }
  return times;
}

}  // namespace kaon::shard
