#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/accumulation.h"
#include "kernels/cuda/elements/fold.h"
#include "kernels/cuda/elements/mean.h"
#include "kernels/cuda/muon/newton_schulz.h"
#include "kernels/cuda/products/product_tuning.h"
#include "kernels/steady_clock.h"
#include "tests/gpu/device_matrices.h"
#include "tests/gpu/sections.h"

namespace kaon::gpu_check {
namespace {

using kernels::NsDType;
using kernels::NsForm;
using kernels::cuda::NewtonSchulzPlan;
using kernels::cuda::OwnedMemory;
using kernels::cuda::SymmetricBatch;
using kernels::cuda::SymmetricForm;
using kernels::cuda::WideBatch;

class DeviceBench {
 public:
  DeviceBench(DeviceStream& stream, bool small, Results& results)
      : stream_(stream),
        small_(small),
        results_(results),
        symmetric_(stream.device(), stream.products()) {}

  void Run() {
    MeasureFold();
    MeasureMean();
    for (const int64_t n : {2048, 4096, 8192}) MeasureGemm(n);
    for (const int64_t n : {4096, 8192}) MeasureForms(n, n, NsForm::kStandard);
    MeasureForms(4096, 14336, NsForm::kGram);
    MeasureSmall();
    results_.Fact("chosen_forms", tuned_.Text());
    results_.Fact("algorithms", stream_.products().Algorithms());
  }

 private:
  // Writes why `name` has no figure; returns false.
  bool Skip(const std::string& name, const absl::Status& status) {
    results_.Skip(name, std::string(status.message()));
    return false;
  }

  // Sums that have a stream each.
  struct FoldLane {
    std::unique_ptr<kernels::cuda::Stream> stream;
    std::unique_ptr<kernels::cuda::Event> end;
    OwnedMemory squares;
    OwnedMemory facts;
  };

  absl::Status Create(int64_t chunk_elements, FoldLane& lane) {
    kernels::cuda::Device& device = stream_.device();
    lane.stream = device.NewStream();
    lane.end = device.NewEvent();
    auto squares = OwnedMemory::OnDevice(
        device, kernels::cuda::NumFoldBlocks(chunk_elements) * sizeof(double));
    if (!squares.ok()) return squares.status();
    auto facts = OwnedMemory::OnDevice(device, sizeof(kernels::cuda::FoldSums));
    if (!facts.ok()) return facts.status();
    lane.squares = *std::move(squares);
    lane.facts = *std::move(facts);
    stream_.stream().SetZero(lane.facts.data(), lane.facts.size());
    return absl::OkStatus();
  }

  // Adds bf16 chunks that are on the device to an fp32 sum. They take turns over 8 streams. An
  // element reads 2 bytes and 4, and writes 4.
  void MeasureFold() {
    const int64_t chunk_elements = small_ ? 5000 : int64_t{8} << 20;
    const int64_t num_chunks = small_ ? 9 : 16;
    const int64_t n = chunk_elements * num_chunks;
    auto from =
        DeviceMatrices::Create(stream_, {NsDType::kBFloat16, num_chunks, chunk_elements, 1});
    auto sum = OwnedMemory::OnDevice(stream_.device(), n * 4);
    FoldLane lanes[8];
    absl::Status created = from.ok() ? sum.status() : from.status();
    for (FoldLane& lane : lanes) created.Update(Create(chunk_elements, lane));
    if (!created.ok()) {
      Skip("fold", created);
      return;
    }
    from->FillRepeated(stream_, 1, 1);
    stream_.stream().SetZero(sum->data(), sum->size());
    kernels::cuda::FoldChunkArguments chunk;
    chunk.dtype = kernels::DType::kBFloat16;
    chunk.weight = 0.5f;
    chunk.first = false;
    chunk.num_elements = chunk_elements;
    const auto begin = stream_.device().NewEvent();
    const double seconds = stream_.MedianSeconds(small_, [&](int) {
      stream_.stream().Record(*begin);
      for (const FoldLane& lane : lanes) lane.stream->Wait(*begin);
      for (int64_t i = 0; i < num_chunks; ++i) {
        const FoldLane& lane = lanes[i % 8];
        chunk.from = static_cast<const uint16_t*>(from->data()) + i * from->layout().pitch;
        chunk.sum = reinterpret_cast<float*>(sum->data()) + i * chunk_elements;
        chunk.facts = reinterpret_cast<kernels::cuda::FoldSums*>(lane.facts.data());
        chunk.block_squares = reinterpret_cast<double*>(lane.squares.data());
        kernels::cuda::FoldChunk(*lane.stream, chunk);
      }
      for (const FoldLane& lane : lanes) {
        lane.stream->Record(*lane.end);
        stream_.stream().Wait(*lane.end);
      }
    });
    results_.Figure("fold", 10.0 * static_cast<double>(n) / seconds / 1e9, "GB/s");
  }

  // Finishes a mean without the host's part: an element is read and written.
  void MeasureMean() {
    const int64_t n = small_ ? 5000 : int64_t{256} << 20;
    auto sum = OwnedMemory::OnDevice(stream_.device(), n * 4);
    auto facts = OwnedMemory::OnDevice(stream_.device(), kernels::cuda::MeanFactsBytes(n));
    if (!sum.ok() || !facts.ok()) {
      Skip("mean_kernel", sum.ok() ? facts.status() : sum.status());
      return;
    }
    stream_.stream().SetZero(sum->data(), sum->size());
    const kernels::cuda::FinishMeanArguments mean = {.sum = reinterpret_cast<float*>(sum->data()),
                                                     .num_elements = n,
                                                     .total_weight = kernels::PrepareDivision(1.5f),
                                                     .loss_scale = kernels::PrepareDivision(1),
                                                     .key = 1,
                                                     .takes_sum = true,
                                                     .facts = facts->data()};
    const double seconds = stream_.MedianSeconds(
        small_, [&](int) { kernels::cuda::FinishMean(stream_.stream(), mean); });
    results_.Figure("mean_kernel", 8.0 * static_cast<double>(n) / seconds / 1e9, "GB/s");
  }

  void MeasureGemm(int64_t size) {
    const std::string name = absl::StrCat("gemm_", size);
    const int64_t n = small_ ? 32 : size;
    kernels::cuda::BatchedProduct product = {NsDType::kBFloat16, n, n, n, true, 1};
    DeviceMatrices matrices[5];
    for (DeviceMatrices& one : matrices) {
      auto created = DeviceMatrices::Create(stream_, {NsDType::kBFloat16, n, n, 1});
      if (!created.ok()) {
        Skip(name, created.status());
        return;
      }
      one = *std::move(created);
      one.FillRepeated(stream_, 1, 1);
    }
    product.a = product.b = product.d = matrices[0].layout();
    if (const absl::Status found = stream_.products().Find(product); !found.ok()) {
      Skip(name, found);
      return;
    }
    // Two pairs of operands by turns.
    const double seconds = stream_.MedianSeconds(small_, [&](int call) {
      const int pair = call % 2 * 2;
      stream_.products().Multiply(
          stream_.on(), product, 1, 0,
          {matrices[pair].data(), matrices[pair + 1].data(), nullptr, matrices[4].data()});
    });
    const double operations = 2.0 * static_cast<double>(n * n) * static_cast<double>(n);
    results_.Figure(name, operations / seconds / 1e12, "TFLOP/s");
  }

  // The iteration alone in bf16 (Gram: fp16): in the fastest form of each product, and in the
  // standard form with dense products.
  void MeasureForms(int64_t rows, int64_t cols, NsForm form) {
    const std::string shape = absl::StrCat(rows, "x", cols);
    const int64_t r = small_ ? 16 : rows;
    const int64_t c = small_ ? 16 * cols / rows : cols;
    kernels::NewtonSchulzConfig config;
    config.dtype = NsDType::kBFloat16;
    kernels::cuda::ProductChoice dense;
    for (const int64_t k : {r, c}) {
      dense.Set(kernels::cuda::KindOf({config.dtype, r, k, 1}), {SymmetricForm::kDense, {}});
    }
    MeasureIteration(absl::StrCat("ns_dense_", shape), config, {{r, c, 1}}, dense);
    if (form == NsForm::kGram) {
      config.form = form;
      config.dtype = NsDType::kFloat16;
      config.coefficients = kernels::NsCoefficients::kPolarExpress;
      config.gram_restarts = {2};
    }
    const SymmetricBatch shapes[] = {kernels::cuda::KindOf({config.dtype, r, r, 1}),
                                     kernels::cuda::KindOf({config.dtype, r, c, 1})};
    const absl::Status tuned = kernels::cuda::Tune({stream_.device(), symmetric_, stream_.on()},
                                                   {.now = SteadyNow}, shapes, tuned_);
    const std::string name = absl::StrCat(form == NsForm::kGram ? "ns_gram_" : "ns_", shape);
    if (!tuned.ok()) {
      Skip(name, tuned);
      return;
    }
    MeasureIteration(name, config, {{r, c, 1}}, tuned_);
  }

  // One batch of matrices of one shape, with its input.
  struct Iteration {
    OwnedMemory memory;
    std::unique_ptr<NewtonSchulzPlan> plan;
    DeviceMatrices x;
    uint64_t bytes = 0;
  };

  absl::StatusOr<Iteration> MakeIteration(const kernels::NewtonSchulzConfig& config,
                                          const WideBatch& shape,
                                          kernels::cuda::ProductChoice& choice) {
    auto memory =
        OwnedMemory::OnDevice(stream_.device(), NewtonSchulzPlan::MemoryBytes(config, shape));
    if (!memory.ok()) return memory.status();
    auto plan = NewtonSchulzPlan::Create(
        {stream_.device(), stream_.products(), symmetric_, choice, stream_.on()}, config, shape,
        memory->data());
    if (!plan.ok()) return plan.status();
    auto x = DeviceMatrices::Create(stream_, {config.dtype, shape.r, shape.c, shape.batch});
    if (!x.ok()) return x.status();
    // Like a normalised X.
    const auto n = static_cast<float>(shape.r * shape.c);
    x->FillRepeated(stream_, 5, 1 / std::sqrt(n));
    const uint64_t bytes = (*plan)->layout().stride * kernels::cuda::ElementBytes(config.dtype);
    return Iteration{*std::move(memory), *std::move(plan), *std::move(x), bytes * shape.batch};
  }

  void MeasureIteration(const std::string& name, const kernels::NewtonSchulzConfig& config,
                        const std::vector<WideBatch>& shapes,
                        kernels::cuda::ProductChoice& choice) {
    std::vector<Iteration> iterations;
    for (const WideBatch& shape : shapes) {
      absl::StatusOr<Iteration> iteration = MakeIteration(config, shape, choice);
      if (!iteration.ok()) {
        Skip(name, iteration.status());
        return;
      }
      iterations.push_back(*std::move(iteration));
    }
    // The copy of the input takes the place of normalisation and rounding.
    const double seconds = stream_.MedianSeconds(small_, [&](int) {
      for (const Iteration& iteration : iterations) {
        stream_.stream().Copy(iteration.x.data(), iteration.plan->x(), iteration.bytes);
        iteration.plan->Run();
      }
    });
    results_.Figure(name, seconds * 1e3, "ms");
  }

  // Batches of equal small matrices in bf16.
  void MeasureSmall() {
    const kernels::NewtonSchulzConfig config = {.dtype = NsDType::kBFloat16};
    const int64_t each = small_ ? 2 : kOfEachSmallShape;
    MeasureIteration("ns_64x256x256", config,
                     {{small_ ? 16 : 256, small_ ? 16 : 256, small_ ? 2 : 64}}, tuned_);
    std::vector<WideBatch> shapes;
    for (const auto& shape : kSmallShapes) {
      const int64_t divisor = small_ ? shape[0] / 16 : 1;
      shapes.push_back({shape[0] / divisor, shape[1] / divisor, each});
    }
    MeasureIteration("ns_126", config, shapes, tuned_);
  }

  DeviceStream& stream_;
  const bool small_;
  Results& results_;
  kernels::cuda::SymmetricProducts symmetric_;
  kernels::cuda::ProductChoice tuned_;
};

}  // namespace

void Probe(const Machine& machine, Results& results) {
  const kernels::cuda::DeviceProperties& properties = machine.device.properties();
  results.Fact("device", properties.name);
  results.Fact("compute_capability", absl::StrCat(properties.major, ".", properties.minor));
  results.Figure("multiprocessors", properties.multiprocessors, "");
  results.Figure("memory", static_cast<double>(properties.memory_bytes) / (1 << 30), "GiB");
  results.Figure("shared_memory_per_block",
                 static_cast<double>(properties.shared_bytes_per_block) / 1024, "KiB");
  results.Figure("driver_version", properties.driver_version, "");
  results.Figure("runtime_version", properties.runtime_version, "");
  results.Fact("device_class", machine.cuda.device_class());
  const auto products = kernels::cuda::Products::Create(machine.device);
  if (products.ok()) {
    results.Fact("uplo_support", (*products)->TriangleSupport());
  } else {
    results.Skip("uplo_support", std::string(products.status().message()));
  }
}

void MeasureDevice(const Machine& machine, Results& results) {
  auto stream = DeviceStream::Create(machine.device);
  if (!stream.ok()) return results.Skip("", std::string(stream.status().message()));
  DeviceBench(**stream, machine.small, results).Run();
}

}  // namespace kaon::gpu_check
