// Parameters that Muon steps on a device on the host, and on the CPU. Used by tests only; one
// thread.
#ifndef KAON_TESTS_KERNELS_CUDA_MUON_DEVICE_MUON_H_
#define KAON_TESTS_KERNELS_CUDA_MUON_DEVICE_MUON_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cpu/muon_step.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/muon/muon_runner.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/state_codec.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {

// One parameter, its state, and what one update needs, on the host.
struct Parameter {
  Parameter(MuonConfig config, std::vector<uint64_t> shape, uint32_t seed)
      : rule(std::move(config)), shape(std::move(shape)) {
    size_t n = 1;
    for (const uint64_t side : this->shape) n *= side;
    weight = reference::GaussianVector(n, seed);
    grad = reference::GaussianVector(n, seed + 1);
    state.resize(StateBytes(std::get<MuonConfig>(rule).momentum_dtype, n));
    scalars = {.lr = 0.02, .clip_factor = 0.5, .t = 1, .parameter_id = seed};
  }

  RuleConfig rule;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<float> grad;
  std::vector<std::byte> state;
  UpdateScalars scalars;
  UpdatePart part = UpdatePart::kAll;
  bool in_place = false;
  // Written by an update.
  std::vector<float> new_weight = {};
  UpdateResult result = {};
};

inline void StepOnCpu(Parameter& p) {
  ReferenceGemm gemm;
  ThreadPool pool(1);
  p.new_weight.assign(p.weight.size(), 0.0f);
  const Region slot(Space::kHost, p.state.data(), p.state.size());
  p.result =
      ApplyMuon(std::get<MuonConfig>(p.rule), p.scalars, p.shape,
                {p.grad, p.weight, p.new_weight, absl::MakeSpan(&slot, 1), p.part}, gemm, pool);
}

// A runner and its device.
class DeviceMuon {
 public:
  explicit DeviceMuon(uint64_t seed = 1) : device_(seed) {
    auto runner = MuonRunner::Create(device_.device());
    CHECK(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  MuonRunner& runner() { return *runner_; }
  TestDevice& device() { return device_; }

  void Step(const std::vector<Parameter*>& parameters) {
    std::vector<OwnedMemory> memory;
    std::vector<Region> states;
    std::vector<Update> updates;
    states.reserve(parameters.size());
    for (Parameter* const p : parameters) {
      const Region grad = Uploaded(p->grad, memory);
      const Region weight = Uploaded(p->weight, memory);
      const std::vector<float> undefined(p->weight.size(), std::nanf(""));
      const Region next = p->in_place ? weight : Uploaded(undefined, memory);
      states.push_back(Uploaded(p->state, memory));
      updates.push_back({&p->rule,
                         p->scalars,
                         p->shape,
                         {grad, weight, next, absl::MakeSpan(&states.back(), 1), p->part},
                         {}});
    }
    std::vector<Update*> pointers;
    for (Update& update : updates) pointers.push_back(&update);
    runner_->RunUpdates(pointers);
    for (size_t i = 0; i < parameters.size(); ++i) {
      Parameter& p = *parameters[i];
      const Region next = updates[i].buffers.new_param;
      p.new_weight = device_.Download<float>(next.data(), next.num_floats());
      p.state = device_.Download<std::byte>(states[i].data(), states[i].size());
      p.result = updates[i].result;
    }
  }
  void Step(std::vector<Parameter>& parameters) {
    std::vector<Parameter*> pointers;
    for (Parameter& p : parameters) pointers.push_back(&p);
    Step(pointers);
  }

 private:
  template <typename T>
  Region Uploaded(const std::vector<T>& values, std::vector<OwnedMemory>& memory) {
    memory.push_back(device_.Memory(values.size() * sizeof(T)));
    device_.Upload(values, memory.back().data());
    return Region(Space::kDevice, memory.back().data(), values.size() * sizeof(T));
  }

  TestDevice device_;
  std::unique_ptr<MuonRunner> runner_;
};

inline MuonConfig ConfigOf(NsDType dtype, NsForm form = NsForm::kStandard) {
  MuonConfig config;
  config.weight_decay = 0.1;
  config.newton_schulz.dtype = dtype;
  config.newton_schulz.form = form;
  if (form == NsForm::kGram) config.newton_schulz.gram_restarts = {2};
  return config;
}

inline MuonConfig WithLayout(MatrixLayoutKind kind, std::vector<uint64_t> sizes = {}) {
  MuonConfig config = ConfigOf(NsDType::kBFloat16);
  config.layout.kind = kind;
  config.layout.sizes = std::move(sizes);
  return config;
}

// Every layout, storage type and form, wide, tall and square.
inline std::vector<Parameter> ManyParameters() {
  std::vector<Parameter> many;
  const auto add = [&many](const MuonConfig& config, std::vector<uint64_t> shape) {
    many.emplace_back(config, std::move(shape), static_cast<uint32_t>(10 * many.size() + 1));
  };
  add(ConfigOf(NsDType::kBFloat16), {32, 32});
  add(ConfigOf(NsDType::kBFloat16), {20, 70});
  add(ConfigOf(NsDType::kBFloat16), {70, 20});
  add(ConfigOf(NsDType::kBFloat16), {20, 70});
  add(ConfigOf(NsDType::kBFloat16, NsForm::kGram), {20, 70});
  add(ConfigOf(NsDType::kFloat16), {20, 70});
  add(ConfigOf(NsDType::kFloat16, NsForm::kGram), {64, 200});
  add(ConfigOf(NsDType::kFloat32), {24, 31});
  add(WithLayout(MatrixLayoutKind::kBatched), {3, 20, 70});
  add(WithLayout(MatrixLayoutKind::kBatched), {3, 64, 64});
  add(WithLayout(MatrixLayoutKind::kConvFlatten), {16, 3, 3, 3});
  add(WithLayout(MatrixLayoutKind::kSplitRows, {20, 20, 5}), {45, 70});
  add(WithLayout(MatrixLayoutKind::kSplitCols, {20, 30}), {20, 50});
  add(WithLayout(MatrixLayoutKind::kQkvInterleaved, {8, 4, 4}), {32, 70});
  MuonConfig encoded = ConfigOf(NsDType::kBFloat16);
  encoded.momentum_dtype = StateDType::kBFloat16;
  add(encoded, {20, 70});
  encoded.momentum_dtype = StateDType::kInt8;
  encoded.nesterov = false;
  add(encoded, {20, 70});
  return many;
}

inline double Distance(const std::vector<float>& x, const std::vector<float>& y) {
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
  }
  return std::sqrt(squares);
}

inline bool AreEqual(const UpdateResult& x, const UpdateResult& y) {
  return x.newton_schulz_calls == y.newton_schulz_calls && x.weights_digest == y.weights_digest &&
         x.slots_digest == y.slots_digest && x.largest_weight_bits == y.largest_weight_bits &&
         x.fault == y.fault;
}

// Bits of weights and state, and the facts about them.
inline bool AreEqual(const Parameter& x, const Parameter& y) {
  return x.new_weight.size() == y.new_weight.size() &&
         memcmp(x.new_weight.data(), y.new_weight.data(), x.new_weight.size() * sizeof(float)) ==
             0 &&
         x.state == y.state && AreEqual(x.result, y.result);
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_MUON_DEVICE_MUON_H_
