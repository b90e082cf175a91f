#include <atomic>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/gpu/device_numbers.h"
#include "tests/gpu/sections.h"
#include "tests/gpu/trained_parameter.h"

namespace kaon::gpu_check {
namespace {

using kernels::Backend;
using kernels::Update;

constexpr int kRepeats = 20;
constexpr int kStreams = 4;

using Parameters = std::vector<std::unique_ptr<TrainedParameter>>;

kernels::MuonConfig Muon(kernels::NsForm form) {
  kernels::MuonConfig muon;
  muon.newton_schulz.dtype =
      form == kernels::NsForm::kGram ? kernels::NsDType::kFloat16 : kernels::NsDType::kBFloat16;
  muon.newton_schulz.form = form;
  if (form == kernels::NsForm::kGram) muon.newton_schulz.gram_restarts = {2};
  return muon;
}

// One parameter of every kind: a square with a cut wave, a wide one in both forms, a batch of equal
// matrices, and element-wise ones.
Parameters MakeParameters(Backend& backend, bool small) {
  const uint64_t n = small ? 40 : 2304;
  const kernels::MuonConfig standard = Muon(kernels::NsForm::kStandard);
  std::vector<TrainedParameter::Options> options = {
      {standard, {n, n}, kernels::DType::kBFloat16},
      {standard, {n / 2, n * 2}, kernels::DType::kBFloat16},
      {Muon(kernels::NsForm::kGram), {n / 2, n * 2}, kernels::DType::kBFloat16},
      {kernels::AdamWConfig(), {n * n + 3}, kernels::DType::kFloat32},
      {kernels::LionConfig(), {n * n / 2}, kernels::DType::kFloat16}};
  for (int i = 0; i < (small ? 3 : 16); ++i) {
    options.push_back({standard, {n / 8, n / 8}, kernels::DType::kFloat32});
  }
  Parameters parameters;
  for (TrainedParameter::Options& one : options) {
    one.seed = parameters.size() + 1;
    parameters.push_back(std::make_unique<TrainedParameter>(backend, one));
  }
  return parameters;
}

// Returns the digest of two steps from the first weights on.
uint64_t DigestOfRun(Backend& backend, Parameters& parameters) {
  uint64_t digest = 0;
  for (auto& parameter : parameters) parameter->Reset();
  for (int64_t t = 1; t <= 2; ++t) {
    std::vector<Update> updates;
    for (auto& parameter : parameters) updates.push_back(parameter->Step(t));
    backend.RunUpdates(absl::MakeSpan(updates));
    for (const Update& update : updates) {
      digest = Mixed(digest, update.result.weights_digest + update.result.slots_digest);
    }
  }
  for (auto& parameter : parameters) digest = Mixed(digest, parameter->Digest());
  return digest;
}

// Returns the digest of a mean over a sum of two pushes.
uint64_t DigestOfMean(Backend& backend, int64_t n) {
  absl::StatusOr<kernels::Tensor> sum = kernels::Tensor::Create(backend, n * sizeof(float));
  if (!sum.ok()) return 0;
  const std::unique_ptr<kernels::Accumulation> accumulation = backend.Accumulate(sum->region());
  accumulation->Begin();
  const std::vector<float> numbers = Numbers(n, 11);
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(numbers.data()),
                                          numbers.size() * sizeof(float));
  for (uint32_t i = 0; i < 2; ++i) {
    kernels::GradientChunk chunk;
    chunk.slices = absl::MakeConstSpan(&bytes, 1);
    chunk.contribution = i;
    chunk.weight = 0.5f;
    chunk.first = i == 0;
    accumulation->Fold(chunk);
  }
  return accumulation->FinishMean({3, 1, 4, true}).digest;
}

void CheckRepeats(const std::string& name, int repeats, Results& results,
                  const std::function<uint64_t()>& run) {
  const uint64_t first = run();
  int differences = 0;
  for (int i = 1; i < repeats; ++i) differences += run() != first;
  results.Check(name, differences == 0,
                absl::StrCat(differences, " of ", repeats, " repeats have another digest"));
}

// Runs `work` on so many threads, each with a stream of its own, and returns their digests' mix;
// 0 if they differ.
uint64_t Concurrently(const std::function<uint64_t(int thread)>& work) {
  std::vector<uint64_t> digests(kStreams);
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] { digests[i] = work(i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t digest : digests) {
    if (digest != digests[0]) return 0;
  }
  return digests[0];
}

// Copies memory on the device until the end of the object.
class CopyLoad {
 public:
  CopyLoad(Backend& backend, uint64_t bytes)
      : from_(*kernels::Tensor::Create(backend, bytes)),
        to_(*kernels::Tensor::Create(backend, bytes)),
        thread_([this, &backend] {
          while (!ended_) backend.Copy(from_.region(), to_.region());
        }) {}
  ~CopyLoad() {
    ended_ = true;
    thread_.join();
  }

 private:
  const kernels::Tensor from_;
  const kernels::Tensor to_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace

void CheckDeterminism(const Machine& machine, Results& results) {
  Backend& cuda = machine.cuda;
  const int repeats = machine.small ? 3 : kRepeats;
  const int64_t n = machine.small ? 5000 : 3 << 20;
  Parameters parameters = MakeParameters(cuda, machine.small);
  const auto run = [&] { return DigestOfRun(cuda, parameters); };
  const uint64_t alone = run();
  CheckRepeats("updates", repeats, results, run);
  CheckRepeats("means", repeats, results, [&] { return DigestOfMean(cuda, n); });
  {
    const CopyLoad load(cuda, machine.small ? 4096 : uint64_t{256} << 20);
    CheckRepeats("updates beside copies", machine.small ? 2 : repeats / 2, results, run);
  }
  std::vector<Parameters> of_thread;
  for (int i = 0; i < kStreams; ++i) of_thread.push_back(MakeParameters(cuda, machine.small));
  CheckRepeats("updates on 4 threads", machine.small ? 2 : repeats / 4, results, [&] {
    return Concurrently([&](int thread) { return DigestOfRun(cuda, of_thread[thread]); });
  });
  results.Check("4 threads and one have one digest", alone == Concurrently([&](int thread) {
                                                       return DigestOfRun(cuda, of_thread[thread]);
                                                     }),
                "the digests differ");
  CheckRepeats("means on 4 threads", machine.small ? 2 : repeats / 4, results,
               [&] { return Concurrently([&](int) { return DigestOfMean(cuda, n); }); });
}

}  // namespace kaon::gpu_check
