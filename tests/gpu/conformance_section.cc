#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/gpu/device_numbers.h"
#include "tests/gpu/sections.h"
#include "tests/gpu/trained_parameter.h"

namespace kaon::gpu_check {
namespace {

using kernels::Backend;
using kernels::DType;
using kernels::RuleConfig;
using kernels::Tensor;
using kernels::Update;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr int kSteps = 3;
// Newton-Schulz rounds its products differently on a device. In half precision two correct results
// differ by at most a few hundredths (rule [N9]); kaonctl verify-numerics has the exact limits.
constexpr double kMuonTolerance = 0.05;

struct NamedRule {
  std::string name;
  RuleConfig rule;
};

std::vector<NamedRule> ElementWiseRules() {
  using kernels::StateDType;
  std::vector<NamedRule> rules;
  for (const StateDType dtype : {StateDType::kFloat32, StateDType::kBFloat16, StateDType::kInt8}) {
    const std::string suffix = absl::StrCat(" momentum ", static_cast<int>(dtype));
    kernels::AdamWConfig adamw;
    adamw.momentum_dtype = dtype;
    adamw.weight_decay = 0.1;
    adamw.amsgrad = dtype == StateDType::kBFloat16;
    if (dtype != StateDType::kFloat32) adamw.exp_avg_sq_dtype = StateDType::kSqrtUInt8;
    rules.push_back({"adamw" + suffix, adamw});
    kernels::SgdConfig sgd;
    sgd.momentum = 0.9;
    sgd.momentum_dtype = dtype;
    sgd.weight_decay = 0.01;
    sgd.nesterov = dtype == StateDType::kFloat32;
    rules.push_back({"sgd" + suffix, sgd});
    kernels::LionConfig lion;
    lion.momentum_dtype = dtype;
    lion.weight_decay = 0.1;
    rules.push_back({"lion" + suffix, lion});
  }
  kernels::AdamWConfig palm;
  palm.eps_mode = kernels::AdamEpsMode::kUncorrected;
  palm.weight_decay = 0.2;
  palm.decay_mode = kernels::DecayMode::kPalm;
  rules.push_back({"adamw uncorrected palm", palm});
  rules.push_back({"sgd plain", kernels::SgdConfig()});
  return rules;
}

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Returns which facts of two results differ; empty if none does.
std::string Differences(const kernels::UpdateResult& a, const kernels::UpdateResult& b) {
  std::string text;
  if (a.weights_digest != b.weights_digest) text += " weights_digest";
  if (a.slots_digest != b.slots_digest) text += " slots_digest";
  if (a.largest_weight_bits != b.largest_weight_bits) text += " largest_weight_bits";
  if (a.fault != b.fault) text += " fault";
  return text;
}

void CheckElementWise(const Machine& machine, const NamedRule& rule, DType dtype, uint64_t n,
                      bool in_place, Results& results) {
  const TrainedParameter::Options options = {rule.rule, {n}, dtype, in_place, n};
  TrainedParameter on_cuda(machine.cuda, options);
  TrainedParameter on_cpu(machine.cpu, options);
  std::string differences;
  for (int t = 1; t <= kSteps; ++t) {
    Update there = on_cuda.Step(t);
    Update here = on_cpu.Step(t);
    machine.cuda.RunUpdates(absl::MakeSpan(&there, 1));
    machine.cpu.RunUpdates(absl::MakeSpan(&here, 1));
    on_cuda.Commit();
    on_cpu.Commit();
    differences += Differences(there.result, here.result);
  }
  if (!SameBytes(on_cuda.Weights(), on_cpu.Weights())) differences += " weights";
  if (!SameBytes(on_cuda.State(), on_cpu.State())) differences += " state";
  results.Check(absl::StrCat("backend ", rule.name, " ", std::string(kernels::NameOf(dtype)), " ",
                             n, in_place ? " in place" : ""),
                differences.empty(), "different:" + differences);
}

// Returns the relative Frobenius norm of a - b.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

// Returns the change of the weights by one step of Muon: first the weights, then the state.
std::vector<float> MuonChange(Backend& backend, TrainedParameter& parameter, bool in_parts,
                              kernels::UpdateResult& result) {
  std::vector<float> change = parameter.Weights();
  if (in_parts) {
    Update weights = parameter.Step(1, kernels::UpdatePart::kWeights);
    backend.RunUpdates(absl::MakeSpan(&weights, 1));
    Update state = parameter.Step(1, kernels::UpdatePart::kState);
    backend.RunUpdates(absl::MakeSpan(&state, 1));
    result = weights.result;
    result.slots_digest = state.result.slots_digest;
  } else {
    Update all = parameter.Step(1);
    backend.RunUpdates(absl::MakeSpan(&all, 1));
    result = all.result;
  }
  parameter.Commit();
  const std::vector<float> weights = parameter.Weights();
  for (size_t i = 0; i < change.size(); ++i) change[i] = weights[i] - change[i];
  return change;
}

void CheckMuon(const Machine& machine, kernels::NsDType dtype, kernels::NsForm form,
               std::vector<uint64_t> shape, Results& results) {
  kernels::MuonConfig muon;
  muon.newton_schulz.dtype = dtype;
  muon.newton_schulz.form = form;
  if (form == kernels::NsForm::kGram) muon.newton_schulz.gram_restarts = {2};
  muon.weight_decay = 0.1;
  const std::string name = absl::StrCat("backend muon ", shape[0], "x", shape[1], " dtype ",
                                        static_cast<int>(dtype), " form ", static_cast<int>(form));
  const TrainedParameter::Options options = {muon, shape, DType::kBFloat16, false, shape[0]};
  TrainedParameter on_cuda(machine.cuda, options);
  TrainedParameter in_parts(machine.cuda, options);
  TrainedParameter on_cpu(machine.cpu, options);
  kernels::UpdateResult there, parts, here;
  const std::vector<float> change = MuonChange(machine.cuda, on_cuda, false, there);
  const std::vector<float> change_in_parts = MuonChange(machine.cuda, in_parts, true, parts);
  const double error = RelativeError(change, MuonChange(machine.cpu, on_cpu, false, here));
  results.Check(name + " weights", error <= kMuonTolerance, absl::StrCat("error ", error));
  results.Check(
      name + " momentum",
      SameBytes(on_cuda.State(), on_cpu.State()) && there.slots_digest == here.slots_digest,
      "different: momentum");
  const std::string differences = Differences(there, parts);
  results.Check(name + " in parts",
                differences.empty() && SameBytes(change, change_in_parts) &&
                    SameBytes(on_cuda.State(), in_parts.State()),
                "different:" + differences);
}

struct Sum {
  std::vector<float> values;
  kernels::MeanFacts mean;
  kernels::FoldFacts facts[3];
};

// Folds three contributions, the second in slices that end inside elements, the third in memory of
// the backend, and finishes the mean.
Sum Folded(Backend& backend, DType dtype, int64_t n) {
  absl::StatusOr<Tensor> sum = Tensor::Create(backend, n * sizeof(float));
  if (!sum.ok()) return {};
  const std::unique_ptr<kernels::Accumulation> accumulation = backend.Accumulate(sum->region());
  accumulation->Begin();
  for (uint32_t contribution = 0; contribution < 3; ++contribution) {
    std::vector<std::byte> bytes(n * kernels::SizeOf(dtype));
    kernels::FromFloat(dtype, Numbers(n, 7 + contribution, 3), bytes.data());
    const size_t cut = contribution == 0 ? bytes.size() / 2 / 4 * 4 : bytes.size() / 3 | 1;
    const absl::Span<const std::byte> all = bytes;
    const absl::Span<const std::byte> slices[] = {all.first(std::min(cut, all.size())),
                                                  all.subspan(std::min(cut, all.size()))};
    kernels::GradientChunk chunk;
    chunk.dtype = dtype;
    const Tensor memory(backend, all);
    if (contribution == 2) {
      chunk.memory = memory.region();
    } else {
      chunk.slices = slices;
    }
    chunk.contribution = contribution;
    chunk.weight = contribution == 0 ? 1 : 0.75f;
    chunk.first = contribution == 0;
    accumulation->Fold(chunk);
  }
  Sum result;
  for (int i : {0, 1, 2}) result.facts[i] = accumulation->FactsOf(i);
  result.mean = accumulation->FinishMean({1.75f, 8, 5, true});
  result.values = sum->Floats();
  return result;
}

void CheckAccumulation(const Machine& machine, DType dtype, int64_t n, Results& results) {
  const Sum there = Folded(machine.cuda, dtype, n);
  const Sum here = Folded(machine.cpu, dtype, n);
  std::string differences;
  if (!SameBytes(there.values, here.values)) differences += " mean";
  if (there.mean.digest != here.mean.digest) differences += " digest";
  if (there.mean.norm.sum_squares != here.mean.norm.sum_squares) differences += " norm";
  if (there.mean.norm.absolute_max != here.mean.norm.absolute_max) differences += " absolute_max";
  if (there.mean.norm.num_zeros != here.mean.norm.num_zeros) differences += " num_zeros";
  for (int i : {0, 1, 2}) {
    if (there.facts[i].sum_squares != here.facts[i].sum_squares) differences += " fold_squares";
    if (there.facts[i].non_finite != here.facts[i].non_finite) differences += " non_finite";
  }
  results.Check(absl::StrCat("backend fold and mean ", std::string(kernels::NameOf(dtype)), " ", n),
                differences.empty(), "different:" + differences);
}

void CheckMemory(const Machine& machine, int64_t n, Results& results) {
  const std::vector<float> numbers = Numbers(n, 3, 1e5f);
  const Tensor there(machine.cuda, numbers);
  const Tensor here(machine.cpu, numbers);
  std::string differences;
  if (!SameBytes(there.Floats(), numbers)) differences += " copy";
  if (machine.cuda.Digest(9, 2, there.region()) != machine.cpu.Digest(9, 2, here.region())) {
    differences += " digest";
  }
  if (machine.cuda.LargestMagnitude(there.region()) !=
      machine.cpu.LargestMagnitude(here.region())) {
    differences += " largest";
  }
  for (const DType dtype : kDTypes) {
    std::vector<std::byte> rounded[] = {std::vector<std::byte>(n * kernels::SizeOf(dtype)),
                                        std::vector<std::byte>(n * kernels::SizeOf(dtype))};
    machine.cuda.RoundOut(there.region(), dtype, rounded[0].data());
    machine.cpu.RoundOut(here.region(), dtype, rounded[1].data());
    if (!SameBytes(rounded[0], rounded[1])) differences += absl::StrCat(" ", NameOf(dtype));
    const Tensor in_memory(machine.cuda, std::vector<std::byte>(rounded[1].size()));
    machine.cuda.Round(there.region(), dtype, in_memory.region());
    in_memory.Read(absl::MakeSpan(rounded[0]));
    if (!SameBytes(rounded[0], rounded[1])) {
      differences += absl::StrCat(" ", NameOf(dtype), " in memory");
    }
  }
  results.Check(absl::StrCat("backend memory ", n), differences.empty(),
                "different:" + differences);
}

}  // namespace

void CheckConformance(const Machine& machine, Results& results) {
  std::vector<int64_t> sizes = {1, 255, 4097};
  if (!machine.small) sizes.insert(sizes.end(), {(1 << 20) + 3, (8 << 20) + 4096});
  for (const int64_t n : sizes) {
    CheckMemory(machine, n, results);
    for (const DType dtype : kDTypes) CheckAccumulation(machine, dtype, n, results);
    for (const NamedRule& rule : ElementWiseRules()) {
      for (const DType dtype : kDTypes) {
        CheckElementWise(machine, rule, dtype, n, dtype != DType::kBFloat16, results);
      }
    }
  }
  std::vector<std::vector<uint64_t>> shapes = {{8, 8}, {33, 65}, {72, 40}};
  if (!machine.small) shapes.insert(shapes.end(), {{256, 256}, {512, 1536}, {1000, 300}});
  for (const std::vector<uint64_t>& shape : shapes) {
    for (const kernels::NsDType dtype :
         {kernels::NsDType::kFloat32, kernels::NsDType::kBFloat16, kernels::NsDType::kFloat16}) {
      CheckMuon(machine, dtype, kernels::NsForm::kStandard, shape, results);
    }
    CheckMuon(machine, kernels::NsDType::kFloat16, kernels::NsForm::kGram, shape, results);
  }
}

}  // namespace kaon::gpu_check
