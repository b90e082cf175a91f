#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "tests/gpu/sections.h"
#include "tests/gpu/trained_parameter.h"

namespace kaon::gpu_check {
namespace {

using kernels::Backend;
using kernels::NsForm;
using kernels::Tensor;
using kernels::Update;

constexpr double kGiga = 1e9;
using Parameters = std::vector<std::unique_ptr<TrainedParameter>>;

// Returns the median of the seconds of `run`, which waits for the device.
double MedianSeconds(const std::function<void()>& run, int repeats) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const absl::Time begin = SteadyNow();
    run();
    seconds.push_back(absl::ToDoubleSeconds(SteadyNow() - begin));
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[repeats / 2];
}

class Bench {
 public:
  Bench(const Machine& machine, Results& results) : machine_(machine), results_(results) {}

  void Run() {
    MeasureCopies();
    MeasureMean();
    MeasureElementWise("adamw", kernels::AdamWConfig{.weight_decay = 0.1}, 28);
    // exp_avg as int8 and exp_avg_sq as uint8 of its root.
    MeasureElementWise("adamw_compact",
                       kernels::AdamWConfig{.weight_decay = 0.1,
                                            .momentum_dtype = kernels::StateDType::kInt8,
                                            .exp_avg_sq_dtype = kernels::StateDType::kSqrtUInt8},
                       16);
    MeasureElementWise("sgd", kernels::SgdConfig{.momentum = 0.9}, 20);
    MeasureElementWise("lion", kernels::LionConfig{.weight_decay = 0.1}, 20);
    MeasureMuon("muon_4096x4096", NsForm::kStandard, {{4096, 4096}}, 1);
    MeasureMuon("muon_8192x8192", NsForm::kStandard, {{8192, 8192}}, 1);
    MeasureMuon("muon_gram_4096x14336", NsForm::kGram, {{4096, 14336}}, 1);
    MeasureMuon("muon_64x256x256", NsForm::kStandard, {{256, 256}}, 64);
    std::vector<std::vector<uint64_t>> shapes;
    for (const auto& shape : kSmallShapes) {
      shapes.push_back({static_cast<uint64_t>(shape[0]), static_cast<uint64_t>(shape[1])});
    }
    MeasureMuon("muon_126", NsForm::kStandard, shapes, kOfEachSmallShape);
    MeasureStep();
  }

 private:
  int repeats() const { return machine_.small ? 2 : machine_.repeats; }
  uint64_t elements() const { return machine_.small ? 4096 : uint64_t{256} << 20; }

  void Rate(const std::string& name, uint64_t bytes, const std::function<void()>& run) {
    results_.Figure(name, static_cast<double>(bytes) / MedianSeconds(run, repeats()) / kGiga,
                    "GB/s");
  }

  // Allocates, or writes why `name` is not measured.
  bool Allocate(const std::string& name, uint64_t bytes, Tensor& tensor) {
    absl::StatusOr<Tensor> allocated = Tensor::Create(machine_.cuda, bytes);
    if (!allocated.ok()) {
      results_.Skip(name, std::string(allocated.status().message()));
      return false;
    }
    tensor = *std::move(allocated);
    return true;
  }

  void MeasureCopies() {
    Backend& cuda = machine_.cuda;
    const uint64_t bytes = elements() * sizeof(float);
    Tensor from, to;
    if (!Allocate("copy", bytes, from) || !Allocate("copy", bytes, to)) return;
    Rate("copy", 2 * bytes, [&] { cuda.Copy(from.region(), to.region()); });
    absl::StatusOr<absl::Span<std::byte>> staging = cuda.AllocateStaging(bytes / 2);
    if (!staging.ok()) {
      results_.Skip("transfer", std::string(staging.status().message()));
      return;
    }
    const kernels::Region half = to.region().Sub(0, bytes / 2);
    Rate("transfer_h2d", bytes / 2, [&] { cuda.CopyIn(*staging, half); });
    Rate("transfer_d2h", bytes / 2, [&] { cuda.CopyOut(half, *staging); });
    cuda.FreeStaging(*staging);
  }

  // The sum is read and the mean written.
  void MeasureMean() {
    Tensor sum;
    const uint64_t bytes = elements() * sizeof(float);
    if (!Allocate("mean", bytes, sum)) return;
    const std::unique_ptr<kernels::Accumulation> accumulation =
        machine_.cuda.Accumulate(sum.region());
    accumulation->Begin();
    accumulation->SetZero();
    Rate("mean", 2 * bytes, [&] { accumulation->FinishMean({1.5f, 1, 1, true}); });
  }

  // `bytes_each`: read and written for each element.
  void MeasureElementWise(const std::string& name, const kernels::RuleConfig& rule,
                          uint64_t bytes_each) {
    TrainedParameter parameter(machine_.cuda, {.rule = rule,
                                               .shape = {elements()},
                                               .grad_dtype = kernels::DType::kFloat32,
                                               .in_place = false,
                                               .repeats_numbers = true});
    int64_t t = 0;
    const auto step = [&] {
      Update update = parameter.Step(++t);
      machine_.cuda.RunUpdates(absl::MakeSpan(&update, 1));
    };
    const double seconds = MedianSeconds(step, repeats());
    const double bytes = static_cast<double>(bytes_each * elements());
    results_.Figure(name, bytes / seconds / kGiga, "GB/s");
    results_.Figure(name + "_ms", seconds * 1e3, "ms");
  }

  Parameters MuonParameters(NsForm form, const std::vector<std::vector<uint64_t>>& shapes,
                            int of_each) {
    kernels::MuonConfig muon;
    muon.newton_schulz.form = form;
    muon.newton_schulz.dtype =
        form == NsForm::kGram ? kernels::NsDType::kFloat16 : kernels::NsDType::kBFloat16;
    if (form == NsForm::kGram) {
      muon.newton_schulz.coefficients = kernels::NsCoefficients::kPolarExpress;
      muon.newton_schulz.gram_restarts = {2};
    }
    Parameters parameters;
    for (const std::vector<uint64_t>& shape : shapes) {
      const uint64_t divisor = machine_.small ? shape[0] / 16 : 1;
      for (int i = 0; i < (machine_.small ? std::min(of_each, 2) : of_each); ++i) {
        parameters.push_back(std::make_unique<TrainedParameter>(
            machine_.cuda,
            TrainedParameter::Options{.rule = muon,
                                      .shape = {shape[0] / divisor, shape[1] / divisor},
                                      .grad_dtype = kernels::DType::kFloat32,
                                      .in_place = false,
                                      .seed = parameters.size() + 1,
                                      .repeats_numbers = true}));
      }
    }
    return parameters;
  }

  double SecondsOfStep(const std::vector<TrainedParameter*>& parameters, int repeats) {
    int64_t t = 0;
    return MedianSeconds(
        [&] {
          ++t;
          std::vector<Update> updates;
          for (TrainedParameter* parameter : parameters) updates.push_back(parameter->Step(t));
          machine_.cuda.RunUpdates(absl::MakeSpan(updates));
        },
        repeats);
  }

  static void Append(const Parameters& from, std::vector<TrainedParameter*>& to) {
    for (const auto& parameter : from) to.push_back(parameter.get());
  }

  // The whole update: momentum, norm, Newton-Schulz, weights and digests.
  void MeasureMuon(const std::string& name, NsForm form,
                   const std::vector<std::vector<uint64_t>>& shapes, int of_each) {
    const Parameters parameters = MuonParameters(form, shapes, of_each);
    std::vector<TrainedParameter*> all;
    Append(parameters, all);
    results_.Figure(name, SecondsOfStep(all, repeats()) * 1e3, "ms");
  }

  // Measures a step of about 1 G parameters, half of them in Muon: all updates in one call. The
  // groups of equal updates, each in a call of its own, add up to what it is compared with.
  void MeasureStep() {
    std::vector<Parameters> groups;
    groups.push_back(MuonParameters(NsForm::kStandard, {{4096, 4096}}, 16));
    groups.push_back(MuonParameters(NsForm::kGram, {{4096, 14336}}, 4));
    groups.emplace_back();
    for (int i = 0; i < 2; ++i) {
      groups.back().push_back(std::make_unique<TrainedParameter>(
          machine_.cuda, TrainedParameter::Options{.rule = kernels::AdamWConfig(),
                                                   .shape = {elements()},
                                                   .grad_dtype = kernels::DType::kFloat32,
                                                   .in_place = false,
                                                   .seed = static_cast<uint64_t>(100 + i),
                                                   .repeats_numbers = true}));
    }
    std::vector<TrainedParameter*> all;
    double sum = 0;
    const int repeats = machine_.small ? 2 : std::min(5, machine_.repeats);
    for (const Parameters& group : groups) {
      std::vector<TrainedParameter*> members;
      Append(group, members);
      Append(group, all);
      sum += SecondsOfStep(members, repeats);
    }
    results_.Figure("step_1g", SecondsOfStep(all, repeats) * 1e3, "ms");
    results_.Figure("step_1g_kernels", sum * 1e3, "ms");
  }

  const Machine& machine_;
  Results& results_;
};

}  // namespace

void Measure(const Machine& machine, Results& results) {
  Bench(machine, results).Run();
  MeasureDevice(machine, results);
}

}  // namespace kaon::gpu_check
