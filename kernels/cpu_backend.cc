#include "kernels/cpu_backend.h"

#include <glog/logging.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/float_bits.h"
#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/rules/element_wise_kernel.h"
#include "kernels/rules/element_wise_rules.h"
#include "kernels/rules/muon.h"
#include "kernels/rules/muon_elements.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

template <DType dtype>
KAON_HOST_DEVICE float LoadAs(const std::byte* src, int64_t i) {
  if constexpr (dtype == DType::kFloat32) {
    float x;
    memcpy(&x, src + 4 * i, sizeof(x));
    return x;
  } else {
    uint16_t x;
    memcpy(&x, src + 2 * i, sizeof(x));
    return dtype == DType::kBFloat16 ? BFloat16ToFloat(x) : Float16ToFloat(x);
  }
}

// Whether any element was not finite; which one is looked for only then.
template <DType dtype, bool first>
struct FoldKernel {
  KAON_HOST_DEVICE static bool Run(const std::byte* src, float weight, float* acc, int64_t n) {
    uint32_t non_finite = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float g = LoadAs<dtype>(src, i);
      non_finite |= static_cast<uint32_t>(IsNonFinite(g));
      acc[i] = first ? weight * g : std::fma(weight, g, acc[i]);
    }
    return non_finite != 0;
  }
};

template <DType dtype>
int64_t FoldAs(const std::byte* src, float weight, bool first, absl::Span<float> acc) {
  const int64_t n = static_cast<int64_t>(acc.size());
  const bool non_finite = first
                              ? RunVectorized<FoldKernel<dtype, true>>(src, weight, acc.data(), n)
                              : RunVectorized<FoldKernel<dtype, false>>(src, weight, acc.data(), n);
  if (!non_finite) return -1;
  int64_t i = 0;
  while (!IsNonFinite(LoadAs<dtype>(src, i))) ++i;
  return i;
}

struct DivideTwice {
  KAON_HOST_DEVICE static void Run(float* acc, float total_weight, float loss_scale, int64_t n) {
    // Dividing by exactly 1 changes no bit, so neither divisor needs to be left out by hand.
    for (int64_t i = 0; i < n; ++i) acc[i] = (acc[i] / total_weight) / loss_scale;
  }
};

struct MuonDirectionKernel {
  KAON_HOST_DEVICE static void Run(const MuonMomentumScalars* scalars, const float* grad,
                                   float* momentum, float* direction, int64_t n) {
    const MuonMomentumScalars s = *scalars;
    for (int64_t i = 0; i < n; ++i) {
      float m = momentum[i];
      direction[i] = MuonDirection(s, grad[i], m);
      momentum[i] = m;
    }
  }
};

struct MuonWeightKernel {
  KAON_HOST_DEVICE static void Run(const MuonWeightScalars* scalars, const float* orthogonal,
                                   const float* param, float* new_param, int64_t n) {
    const MuonWeightScalars s = *scalars;
    // new_param may be param: each element is read before it is written.
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < n; ++i) new_param[i] = MuonWeight(s, orthogonal[i], param[i]);
  }
};

void CheckSizes(const RuleConfig& rule, absl::Span<const uint64_t> shape,
                const UpdateBuffers& buffers) {
  uint64_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  CHECK(buffers.grad.size() == n && buffers.param.size() == n && buffers.new_param.size() == n)
      << "shape has " << n << " elements, gradient " << buffers.grad.size() << ", parameter "
      << buffers.param.size() << ", new parameter " << buffers.new_param.size();
  const std::vector<StateSlot> slots = StateSlots(rule, shape);
  CHECK(buffers.state.size() == slots.size())
      << "rule has " << slots.size() << " state slots, given " << buffers.state.size();
  for (size_t i = 0; i < slots.size(); ++i) {
    CHECK(static_cast<int64_t>(buffers.state[i].size()) == slots[i].num_bytes)
        << slots[i].name << " has " << buffers.state[i].size() << " bytes, needs "
        << slots[i].num_bytes;
  }
}

float* Floats(absl::Span<std::byte> slot) { return reinterpret_cast<float*>(slot.data()); }

template <typename Rule>
UpdateResult ApplyElementWise(const typename Rule::Config& config, const UpdateScalars& scalars,
                              const UpdateBuffers& buffers) {
  const typename Rule::Scalars s =
      Rule::Prepare(config, scalars.lr, scalars.clip_factor, scalars.t);
  ElementWiseArrays<Rule> arrays;
  arrays.grad = buffers.grad.data();
  arrays.param = buffers.param.data();
  arrays.new_param = buffers.new_param.data();
  for (int k = 0; k < Rule::kNumSlots; ++k) arrays.state[k] = Floats(buffers.state[k]);
  arrays.n = static_cast<int64_t>(buffers.param.size());
  RunVectorized<ElementWiseKernel<Rule>>(&s, static_cast<const ElementWiseArrays<Rule>*>(&arrays));
  return UpdateResult{};
}

UpdateResult ApplyMuon(const MuonConfig& config, const UpdateScalars& scalars, MatrixShape shape,
                       const UpdateBuffers& buffers, Gemm& gemm) {
  const int64_t n = static_cast<int64_t>(buffers.param.size());
  MuonMomentumScalars before;
  before.clip = static_cast<float>(scalars.clip_factor);
  before.momentum = static_cast<float>(config.momentum);
  before.one_minus_momentum = static_cast<float>(1.0 - config.momentum);
  before.nesterov = config.nesterov;
  // [M3]: a copy even without Nesterov; orthogonalizing must not reach the state.
  std::vector<float> update(buffers.param.size());
  RunVectorized<MuonDirectionKernel>(static_cast<const MuonMomentumScalars*>(&before),
                                     buffers.grad.data(), Floats(buffers.state[0]), update.data(),
                                     n);

  NewtonSchulz(config.newton_schulz, shape, update, absl::MakeSpan(update), gemm);

  MuonWeightScalars after;
  after.minus_decay = static_cast<float>(0.0 - scalars.lr * config.weight_decay);
  after.step_size =
      static_cast<float>(scalars.lr * Muon::UpdateScaleOf(config, shape.rows, shape.cols));
  RunVectorized<MuonWeightKernel>(static_cast<const MuonWeightScalars*>(&after),
                                  static_cast<const float*>(update.data()), buffers.param.data(),
                                  buffers.new_param.data(), n);
  return UpdateResult{.newton_schulz_calls = 1};
}

}  // namespace

CpuBackend::CpuBackend(std::unique_ptr<Gemm> gemm) : gemm_(std::move(gemm)) {
  CHECK(gemm_ != nullptr);
}

std::string CpuBackend::name() const { return absl::StrCat("cpu/", gemm_->name()); }

int64_t CpuBackend::Fold(DType dtype, const std::byte* src, float weight, bool first,
                         absl::Span<float> acc) {
  switch (dtype) {
    case DType::kFloat32:
      return FoldAs<DType::kFloat32>(src, weight, first, acc);
    case DType::kBFloat16:
      return FoldAs<DType::kBFloat16>(src, weight, first, acc);
    case DType::kFloat16:
      return FoldAs<DType::kFloat16>(src, weight, first, acc);
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

void CpuBackend::FinishMean(float total_weight, float loss_scale, absl::Span<float> acc) {
  RunVectorized<DivideTwice>(acc.data(), total_weight, loss_scale,
                             static_cast<int64_t>(acc.size()));
}

GradNorm CpuBackend::ComputeNorm(absl::Span<const float> grad) { return ComputeGradNorm(grad); }

UpdateResult CpuBackend::ApplyUpdate(const RuleConfig& rule, const UpdateScalars& scalars,
                                     absl::Span<const uint64_t> shape,
                                     const UpdateBuffers& buffers) {
  CheckSizes(rule, shape, buffers);
  return std::visit(
      [&](const auto& config) {
        using Config = std::decay_t<decltype(config)>;
        if constexpr (std::is_same_v<Config, MuonConfig>) {
          CHECK(shape.size() == 2)
              << "muon takes matrices, given " << shape.size() << " dimensions";
          const MatrixShape matrix{static_cast<int64_t>(shape[0]), static_cast<int64_t>(shape[1])};
          return ApplyMuon(config, scalars, matrix, buffers, *gemm_);
        } else {
          using Rule = typename FindRule<Config, ElementWiseRules>::type;
          return ApplyElementWise<Rule>(config, scalars, buffers);
        }
      },
      rule);
}

}  // namespace kaon::kernels
