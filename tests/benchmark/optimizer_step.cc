// Measures how fast the cpu backend works element by element (docs/design/performance.md section
// 0). Rules are compared with a triad of the same memory, and the pass that finishes a sum of
// gradients with a copy.
#include <glog/logging.h>
#include <xmmintrin.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel_ranges.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/dtype.h"
#include "kernels/gemm/onednn_gemm.h"
#include "kernels/optimizer_rule.h"
#include "tests/benchmark/measurement.h"
#include "tests/benchmark/stepped_parameter.h"

namespace kaon::kernels {
namespace {

using benchmark::Measurement;

struct Options {
  int64_t million_elements = 64;
  int rounds = 5;
  std::vector<int> threads = {1, 2};
  std::string isa = "widest";
  std::string json;
};

// c <- a + b / 2, bypassing the caches; c must be aligned.
void Triad(const float* a, const float* b, float* c, int64_t n) {
  int64_t i = 0;
  const __m128 half = _mm_set1_ps(0.5f);
  for (; i + 4 <= n; i += 4) {
    const __m128 product = _mm_mul_ps(half, _mm_loadu_ps(b + i));
    _mm_stream_ps(c + i, _mm_add_ps(_mm_loadu_ps(a + i), product));
  }
  for (; i < n; ++i) c[i] = a[i] + 0.5f * b[i];
  _mm_sfence();
}

// c <- a, bypassing the caches.
void Copy(const float* a, float* c, int64_t n) {
  StreamTo(a, static_cast<size_t>(n) * sizeof(float), c);
  EndStreaming();
}

// Counts the bytes of the gradient once, and those of weight and state as read and written.
void MeasureElementWise(const Options& options, const std::string& name, const RuleConfig& rule,
                        DType dtype, WeightsGo weights_go, int threads, std::FILE* json) {
  ThreadPool pool(threads);
  CpuBackend backend(std::make_unique<OneDnnGemm>(), threads);
  const int64_t n = options.million_elements << 20;
  const std::vector<uint64_t> shape = {static_cast<uint64_t>(n)};
  SteppedParameter parameter(rule, shape, pool, dtype, weights_go);
  const HostArray<float> a = HostValues(pool, n, 1);
  const HostArray<float> b = HostValues(pool, n, 1);
  HostArray<float> c = HostValues(pool, n, 1);
  const auto triad = [&] {
    ForEachRange(pool, n, 1 << 16, [&](int64_t begin, int64_t end) {
      Triad(a.data() + begin, b.data() + begin, c.data() + begin, end - begin);
    });
  };
  const auto rounds = benchmark::MeasureByTurns(
      options.rounds, [&] { parameter.Step(backend); }, triad);
  Measurement measurement;
  measurement.name = name;
  measurement.settings = absl::StrCat(
      options.million_elements, " Mi ", dtype == DType::kFloat32 ? "fp32" : "bf16 gradients",
      weights_go == WeightsGo::kBeside ? ", out of place" : "", ", ", threads, " threads");
  measurement.unit = "GB/s";
  measurement.limit_name = "triad";
  const size_t bytes = SizeOf(dtype) + 8 * (1 + StateSlots(rule, shape).size());
  SetRates(rounds, 1e-9 * static_cast<double>(bytes) * static_cast<double>(n),
           12e-9 * static_cast<double>(n), measurement);
  Print(measurement, json);
}

void MeasureFinish(const Options& options, int threads, std::FILE* json) {
  ThreadPool pool(threads);
  CpuBackend backend(std::make_unique<OneDnnGemm>(), threads);
  const int64_t n = options.million_elements << 20;
  HostArray<float> sum = HostValues(pool, n, 1);
  HostArray<float> copied = HostValues(pool, n, 1);
  const auto copy = [&] {
    ForEachRange(pool, n, 1 << 16, [&](int64_t begin, int64_t end) {
      Copy(sum.data() + begin, copied.data() + begin, end - begin);
    });
  };
  // Divide by 3 in one round and by 1/3 in the next, so that the sum keeps its size.
  bool by_a_third = false;
  const std::unique_ptr<Accumulation> accumulation = backend.Accumulate(sum.region());
  const auto finish = [&] {
    by_a_third = !by_a_third;
    accumulation->FinishMean({.total_weight = by_a_third ? 1.0f / 3 : 3.0f});
  };
  const auto rounds = benchmark::MeasureByTurns(options.rounds, finish, copy);
  Measurement measurement;
  measurement.name = "finish_pass";
  measurement.settings = absl::StrCat(options.million_elements, " Mi fp32, ", threads, " threads");
  measurement.unit = "GB/s";
  measurement.limit_name = "copy";
  SetRates(rounds, 8e-9 * static_cast<double>(n), 8e-9 * static_cast<double>(n), measurement);
  Print(measurement, json);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Speed of optimizer steps beside the limits of the machine, measured by turns.");
  app.add_option("--million-elements", options.million_elements,
                 "of the parameters of element-wise rules, Mi (64)");
  app.add_option("--rounds", options.rounds, "of each measurement (5)")->check(CLI::Range(5, 1000));
  app.add_option("--threads", options.threads, "numbers of threads (1,2)")->delimiter(',');
  app.add_option("--isa", options.isa,
                 "instruction set of the loops: widest, avx512, avx2, scalar");
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const benchmark::JsonFile json = benchmark::OpenJson(options.json);
  // Chosen for the process; each measurement makes its own backend.
  BackendOptions chosen_isa;
  chosen_isa.isa = options.isa;
  const auto chosen = CreateBackend(chosen_isa);
  CHECK(chosen.ok()) << chosen.status();
  SgdConfig momentum;
  momentum.momentum = 0.9;
  for (const int threads : options.threads) {
    for (const WeightsGo weights_go : {WeightsGo::kInPlace, WeightsGo::kBeside}) {
      const auto measure = [&](const char* name, const RuleConfig& rule, DType dtype) {
        MeasureElementWise(options, name, rule, dtype, weights_go, threads, json.get());
      };
      measure("adamw_step", AdamWConfig{}, DType::kFloat32);
      measure("adamw_step", AdamWConfig{}, DType::kBFloat16);
      measure("sgd_step", momentum, DType::kFloat32);
      measure("lion_step", LionConfig{}, DType::kFloat32);
    }
    MeasureFinish(options, threads, json.get());
  }
  return 0;
}

}  // namespace
}  // namespace kaon::kernels

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::kernels::Main(argc, argv);
}
