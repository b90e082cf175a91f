#include "tests/kernels/cuda/backend_scenario.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/cuda/on_host/device_on_host.h"
#include "kernels/reduce/digest.h"
#include "kernels/tensor.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {
namespace {

uint64_t BitsOfDouble(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// One parameter's way through the step.
class Parameter {
 public:
  Parameter(Backend& backend, uint32_t id, RuleConfig rule, uint64_t size)
      : backend_(backend),
        id_(id),
        rule_(std::move(rule)),
        shape_({size}),
        weight_(backend, reference::GaussianVector(size, 100 + id)),
        new_weight_(backend, std::vector<float>(size)),
        sum_(backend, std::vector<float>(size)),
        accumulation_(backend.Accumulate(sum_.region())) {
    for (const StateSlot& slot : StateSlots(rule_, shape_)) {
      slots_.push_back(Tensor::Create(backend, slot.num_bytes).value());
      regions_.push_back(slots_.back().region());
    }
  }

  // Folds contribution `number` in chunks of 700 elements, with a slice that ends in an element.
  void Fold(uint32_t number, int step) {
    const std::vector<float> grad = reference::GaussianVector(shape_[0], 10 * step + number + id_);
    const DType dtype = number == 0 ? DType::kFloat32 : DType::kBFloat16;
    if (number == 0) accumulation_->Begin();
    std::vector<std::byte> bytes(700 * SizeOf(dtype));
    for (uint64_t first = 0; first < shape_[0]; first += 700) {
      const uint64_t count = std::min<uint64_t>(700, shape_[0] - first);
      FromFloat(dtype, absl::MakeConstSpan(grad).subspan(first, count), bytes.data());
      const auto chunk = absl::MakeConstSpan(bytes).first(count * SizeOf(dtype));
      const absl::Span<const std::byte> slices[] = {chunk.first(1), chunk.subspan(1)};
      accumulation_->Fold({dtype, slices, first, number, 0.5f + number, number == 0});
      std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    }
  }

  // Reads sum, mean and facts while folds are under way.
  void Finish() {
    if (id_ % 3 == 0) facts_.push_back(TensorDigest(id_, 7, sum_.Floats()));
    const MeanFacts mean = accumulation_->FinishMean(
        {.total_weight = 3, .loss_scale = 1024, .parameter_id = id_, .takes_sum = true});
    facts_.push_back(mean.digest);
    facts_.push_back(BitsOfDouble(mean.norm.sum_squares));
    facts_.push_back(BitsOfDouble(mean.norm.absolute_max));
    for (const uint32_t number : {0, 1, 2}) {
      facts_.push_back(BitsOfDouble(accumulation_->FactsOf(number).sum_squares));
    }
  }

  Update Next(int step) const {
    return {&rule_,
            {.lr = 0.01, .clip_factor = 0.5, .t = step, .parameter_id = id_},
            shape_,
            {sum_.region(), weight_.region(), new_weight_.region(), regions_},
            {}};
  }

  void TakeNewWeights() { backend_.Copy(new_weight_.region(), weight_.region()); }

  void Describe(const UpdateResult& result) {
    facts_.insert(facts_.end(),
                  {result.weights_digest, result.slots_digest, uint64_t{result.largest_weight_bits},
                   static_cast<uint64_t>(result.fault)});
    facts_.push_back(backend_.Digest(id_, kWeightSlot, new_weight_.region()));
    facts_.push_back(backend_.LargestMagnitude(new_weight_.region()));
    std::vector<std::byte> rounded(2 * (shape_[0] + 1));
    backend_.RoundOut(new_weight_.region(), DType::kBFloat16, rounded.data());
    facts_.push_back(TensorDigester(id_, 8).OfBytes(rounded, 0));
  }

  const std::vector<uint64_t>& facts() const { return facts_; }

 private:
  Backend& backend_;
  const uint32_t id_;
  const RuleConfig rule_;
  const std::vector<uint64_t> shape_;
  Tensor weight_;
  Tensor new_weight_;
  Tensor sum_;
  std::vector<Tensor> slots_;
  std::vector<Region> regions_;
  std::unique_ptr<Accumulation> accumulation_;
  std::vector<uint64_t> facts_;
};

// Copies more than the pieces of a lane in and out.
uint64_t CopyMuch(Backend& backend) {
  std::vector<float> floats(5 << 18 | 3);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i);
  const Tensor tensor(backend, floats);
  return TensorDigest(9, 9, tensor.Floats());
}

}  // namespace

std::vector<uint64_t> RunScenario(Backend& backend) {
  AdamWConfig encoded;
  encoded.momentum_dtype = StateDType::kInt8;
  SgdConfig momentum;
  momentum.momentum = 0.9;
  std::vector<std::unique_ptr<Parameter>> parameters;
  const std::vector<std::pair<RuleConfig, uint64_t>> rules = {
      {AdamWConfig(), 4097}, {encoded, 1500},  {momentum, 2100},
      {LionConfig(), 900},   {SgdConfig(), 5}, {AdamWConfig(), 700}};
  for (const auto& [rule, size] : rules) {
    const auto id = static_cast<uint32_t>(parameters.size());
    parameters.push_back(std::make_unique<Parameter>(backend, id, rule, size));
  }
  for (int step = 1; step <= 2; ++step) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&parameters, t, step] {
        for (size_t i = t; i < parameters.size(); i += 2) {
          for (const uint32_t number : {0, 1}) parameters[i]->Fold(number, step);
          parameters[i]->Finish();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<Update> updates;
    for (const auto& parameter : parameters) updates.push_back(parameter->Next(step));
    backend.RunUpdates(absl::MakeSpan(updates));
    for (size_t i = 0; i < updates.size(); ++i) {
      parameters[i]->Describe(updates[i].result);
      parameters[i]->TakeNewWeights();
    }
  }
  std::vector<uint64_t> facts = {CopyMuch(backend)};
  for (const auto& parameter : parameters) {
    facts.insert(facts.end(), parameter->facts().begin(), parameter->facts().end());
  }
  return facts;
}

std::unique_ptr<CudaBackend> NewBackendOnHost(uint64_t seed, int num_streams) {
  CudaBackend::Options options;
  options.num_lanes = num_streams + 2;
  options.folds = {num_streams, 3};
  options.num_update_streams = static_cast<size_t>(num_streams);
  on_host::DeviceOnHostOptions device;
  device.seed = seed;
  auto backend = CudaBackend::Create(on_host::NewDeviceOnHost(device), options);
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

}  // namespace kaon::kernels::cuda
