#include "tests/gpu/trained_parameter.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/gpu/device_numbers.h"

namespace kaon::gpu_check {
namespace {

using kernels::Tensor;

// Numbers that are copied over a large parameter.
constexpr int64_t kRepeatedNumbers = int64_t{1} << 20;

std::vector<std::byte> BytesOf(const std::vector<float>& floats, kernels::DType dtype) {
  std::vector<std::byte> bytes(floats.size() * kernels::SizeOf(dtype));
  kernels::FromFloat(dtype, floats, bytes.data());
  return bytes;
}

Tensor Zeroed(kernels::Backend& backend, uint64_t bytes) {
  absl::StatusOr<Tensor> tensor = Tensor::Create(backend, bytes);
  CHECK(tensor.ok()) << tensor.status();
  return *std::move(tensor);
}

// Copies `bytes` over the whole region as often as it takes.
void FillWith(kernels::Backend& backend, const std::vector<std::byte>& bytes,
              kernels::Region region) {
  for (uint64_t at = 0; at < region.size(); at += bytes.size()) {
    const uint64_t n = std::min<uint64_t>(bytes.size(), region.size() - at);
    backend.CopyIn(absl::MakeConstSpan(bytes).first(n), region.Sub(at, n));
  }
}

}  // namespace

TrainedParameter::TrainedParameter(kernels::Backend& backend, Options options)
    : backend_(backend), options_(std::move(options)) {
  for (const uint64_t extent : options_.shape) num_elements_ *= static_cast<int64_t>(extent);
  const int64_t numbers =
      options_.repeats_numbers ? std::min(num_elements_, kRepeatedNumbers) : num_elements_;
  first_weights_ = BytesOf(Numbers(numbers, options_.seed, 0.5f), kernels::DType::kFloat32);
  grad_ = Zeroed(backend, num_elements_ * kernels::SizeOf(options_.grad_dtype));
  FillWith(backend, BytesOf(Numbers(numbers, options_.seed + 1), options_.grad_dtype),
           grad_.region());
  weights_ = Zeroed(backend, num_elements_ * sizeof(float));
  if (!options_.in_place) new_weights_ = Zeroed(backend, num_elements_ * sizeof(float));
  for (const kernels::StateSlot& slot : kernels::StateSlots(options_.rule, options_.shape)) {
    slots_.push_back(Zeroed(backend, slot.num_bytes));
    state_.push_back(slots_.back().region());
  }
  FillWith(backend, first_weights_, weights_.region());
}

kernels::Region TrainedParameter::target() const {
  return options_.in_place ? weights_.region() : new_weights_.region();
}

kernels::Update TrainedParameter::Step(int64_t t, kernels::UpdatePart part) {
  kernels::Update update;
  update.rule = &options_.rule;
  update.scalars.lr = 0.01 / static_cast<double>(t);
  // One step of three is clipped.
  update.scalars.clip_factor = t % 3 == 2 ? 0.37 : 1;
  update.scalars.t = t;
  update.scalars.parameter_id = static_cast<uint32_t>(options_.seed);
  update.shape = options_.shape;
  update.buffers.grad = kernels::GradView(options_.grad_dtype, grad_.region());
  update.buffers.param = weights_.region();
  update.buffers.new_param = target();
  update.buffers.state = state_;
  update.buffers.part = part;
  return update;
}

void TrainedParameter::Commit() {
  if (!options_.in_place) std::swap(weights_, new_weights_);
}

void TrainedParameter::Reset() {
  FillWith(backend_, first_weights_, weights_.region());
  for (const kernels::Region& slot : state_) {
    FillWith(backend_, std::vector<std::byte>(std::min<uint64_t>(slot.size(), 1 << 20)), slot);
  }
}

std::vector<float> TrainedParameter::Weights() const { return weights_.Floats(); }

std::vector<std::byte> TrainedParameter::State() const {
  std::vector<std::byte> all;
  for (const Tensor& slot : slots_) {
    std::vector<std::byte> bytes(slot.region().size());
    slot.Read(absl::MakeSpan(bytes));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

uint64_t TrainedParameter::Digest() const {
  const uint32_t id = static_cast<uint32_t>(options_.seed);
  uint64_t digest = backend_.Digest(id, 0, weights_.region());
  for (size_t i = 0; i < state_.size(); ++i) {
    digest += backend_.Digest(id, static_cast<uint32_t>(i + 1), state_[i]);
  }
  return digest;
}

}  // namespace kaon::gpu_check
