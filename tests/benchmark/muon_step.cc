// Measures how fast the cpu backend steps parameters by Muon (docs/design/performance.md sections 0
// and 2.1):
// - the standard form, compared with tile registers whose operands are in the L1 cache, or with the
//   library if there are no tiles;
// - the Gram form, compared with the standard form;
// - many small matrices, compared with one large product.
// Rates count the dense products of the standard form.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/dtype.h"
#include "kernels/gemm/amx_gemm.h"
#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/onednn_gemm.h"
#include "kernels/gemm/tiled_gemm.h"
#include "kernels/optimizer_rule.h"
#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/steady_clock.h"
#include "tests/benchmark/measurement.h"
#include "tests/benchmark/stepped_parameter.h"

namespace kaon::kernels {
namespace {

using benchmark::Measurement;

struct Options {
  int rounds = 5;
  std::vector<int> threads = {1, 2};
  std::vector<std::string> shapes = {"1024x1024", "2048x2048", "4096x4096", "1024x4096",
                                     "4096x1024"};
  // Restarts of the Gram form that meet the error bound of [N9] in bf16 (performance.md section
  // 2.1).
  std::vector<int> restarts = {2, 3};
  int64_t small_matrices = 64;
  std::string gemm = "widest";
  std::string json;
};

std::unique_ptr<Gemm> MakeGemm(const std::string& name, ThreadPool& pool) {
  auto library = std::make_unique<TiledGemm>(std::make_unique<OneDnnGemm>(), pool);
  if (name == "onednn" || !HasAmx()) return library;
  return std::make_unique<AmxGemm>(std::move(library), pool);
}

MuonConfig Muon(NsForm form, std::vector<int> restarts = {}) {
  MuonConfig config;
  config.newton_schulz.coefficients = NsCoefficients::kPolarExpress5S105;
  config.newton_schulz.dtype = NsDType::kBFloat16;
  config.newton_schulz.form = form;
  config.newton_schulz.gram_restarts = std::move(restarts);
  return config;
}

// Operations of the standard form; does not use symmetry.
double FlopsOfStep(MatrixShape shape) {
  const auto r = static_cast<double>(std::min(shape.rows, shape.cols));
  const auto c = static_cast<double>(std::max(shape.rows, shape.cols));
  return 5 * 2 * r * r * (2 * c + r);
}

// Products of random blocks that stay in the L1 cache: a fixed number per thread.
class TilePeak {
 public:
  explicit TilePeak(ThreadPool& pool) : pool_(pool), sums_(pool.threads()) {
    for (int t = 0; t < pool.threads(); ++t) {
      operands_.emplace_back(2 * kInner * kBlockElements);
      const std::vector<float> values = Values(pool, operands_.back().num_elements(), 1);
      for (size_t i = 0; i < values.size(); ++i) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        operands_.back().data()[i] = static_cast<uint16_t>(bits >> 16);
      }
    }
  }

  double flops() const {
    return 2.0 * kBlockElements * kBlockSide * kInner * kRepeats * pool_.threads();
  }

  void Run() {
    pool_.ParallelFor(pool_.threads(), [&](int64_t t) {
      const AmxTiles tiles;
      const uint16_t* a = operands_[t].data();
      for (int i = 0; i < kRepeats; ++i) {
        MultiplyBlocks(a, a + kInner * kBlockElements, kInner, false, sums_[t]);
      }
    });
  }

 private:
  static constexpr int64_t kInner = 8;
  static constexpr int kRepeats = 20000;

  ThreadPool& pool_;
  std::vector<StoredMatrix> operands_;
  std::vector<SumsOfBlock> sums_;
};

// The library's products of random matrices, in the shapes that a step multiplies.
class LibraryProducts {
 public:
  LibraryProducts(MatrixShape shape, ThreadPool& pool)
      : r_(std::min(shape.rows, shape.cols)),
        c_(std::max(shape.rows, shape.cols)),
        gemm_(std::make_unique<OneDnnGemm>(), pool),
        x_(Values(pool, r_ * c_, 1)),
        gram_(Values(pool, r_ * r_, 2)),
        half_x_(Rounded(x_)),
        half_gram_(Rounded(gram_)),
        product_(r_ * c_) {}

  // X X^T in bf16.
  double flops() const { return 2.0 * static_cast<double>(r_ * r_ * c_); }
  void Run() { gemm_.MultiplyBFloat16(Square(), half_x_.data(), half_x_.data(), product_.data()); }

  // Runs the fastest of four products: X X^T and its product with X, in bf16 and in fp32. All have
  // as many operations.
  void RunFastest() { products_[fastest_](); }
  void FindFastest() {
    absl::Duration least = absl::InfiniteDuration();
    for (size_t i = 0; i < products_.size(); ++i) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const absl::Time start = SteadyNow();
        products_[i]();
        const absl::Duration taken = SteadyNow() - start;
        if (taken >= least) continue;
        least = taken;
        fastest_ = i;
      }
    }
  }

 private:
  static std::vector<uint16_t> Rounded(const std::vector<float>& values) {
    std::vector<uint16_t> rounded(values.size());
    FromFloat(DType::kBFloat16, values, reinterpret_cast<std::byte*>(rounded.data()));
    return rounded;
  }
  MatrixProduct Square() const {
    return {.rows = r_, .cols = r_, .inner = c_, .transpose_b = true};
  }
  MatrixProduct Wide() const { return {.rows = r_, .cols = c_, .inner = r_}; }

  const int64_t r_;
  const int64_t c_;
  TiledGemm gemm_;
  const std::vector<float> x_;
  const std::vector<float> gram_;
  const std::vector<uint16_t> half_x_;
  const std::vector<uint16_t> half_gram_;
  std::vector<float> product_;
  const std::vector<std::function<void()>> products_ = {
      [this] { Run(); },
      [this] {
        gemm_.MultiplyBFloat16(Wide(), half_gram_.data(), half_x_.data(), product_.data());
      },
      [this] { gemm_.Multiply(Square(), x_.data(), x_.data(), product_.data()); },
      [this] { gemm_.Multiply(Wide(), gram_.data(), x_.data(), product_.data()); }};
  size_t fastest_ = 0;
};

// The best that the machine can do, and its name.
struct Limit {
  std::string name;
  double flops;
  std::function<void()> run;
};

class Benchmark {
 public:
  Benchmark(const Options& options, int threads, std::FILE* json)
      : options_(options),
        threads_(threads),
        json_(json),
        pool_(threads),
        backend_([&](ThreadPool& pool) { return MakeGemm(options.gemm, pool); }, threads),
        gemm_(MakeGemm(options.gemm, pool_)) {
    if (HasAmx()) peak_ = std::make_unique<TilePeak>(pool_);
  }

  void StandardForm(const std::string& text) {
    const MatrixShape shape = Parse(text);
    SteppedParameter parameter(Muon(NsForm::kStandard), Extents(shape), pool_);
    LibraryProducts product(shape, pool_);
    const Limit limit =
        peak_ ? Limit{"tiles fed from the first cache", peak_->flops(), [&] { peak_->Run(); }}
              : Limit{"library's product X X^T", product.flops(), [&] { product.Run(); }};
    const auto step = [&] { parameter.Step(backend_); };
    Report("muon_step", absl::StrCat(text, " bf16"), FlopsOfStep(shape), limit, step);
    product.FindFastest();
    Report("muon_library", absl::StrCat(text, " bf16"), FlopsOfStep(shape),
           {"library's fastest product", product.flops(), [&] { product.RunFastest(); }}, step);
  }

  static bool HasGramForm(const std::string& text) {
    const MatrixShape shape = Parse(text);
    return shape.rows != shape.cols;
  }

  void GramForm(const std::string& text) {
    const MatrixShape shape = Parse(text);
    SteppedParameter standard(Muon(NsForm::kStandard), Extents(shape), pool_);
    SteppedParameter gram(Muon(NsForm::kGram, options_.restarts), Extents(shape), pool_);
    const double flops = FlopsOfStep(shape);
    Report("muon_step",
           absl::StrCat(text, " bf16 gram {", absl::StrJoin(options_.restarts, ","), "}"), flops,
           {"standard form", flops, [&] { standard.Step(backend_); }},
           [&] { gram.Step(backend_); });
  }

  // Prints the error of both bf16 forms relative to the standard form in fp32. The ratio is that of
  // the errors, with Gram as the limit.
  void GramError(const std::string& text) {
    const MatrixShape shape = Parse(text);
    std::vector<float> x = Values(pool_, shape.rows * shape.cols, 1);
    MuonConfig fp32 = Muon(NsForm::kStandard);
    fp32.newton_schulz.dtype = NsDType::kFloat32;
    const std::vector<float> exact = Orthogonalized(fp32, shape, x);
    const double standard = Distance(Orthogonalized(Muon(NsForm::kStandard), shape, x), exact);
    const double gram =
        Distance(Orthogonalized(Muon(NsForm::kGram, options_.restarts), shape, x), exact);
    Measurement measurement;
    measurement.name = "muon_error";
    measurement.settings = absl::StrCat(text, " bf16 standard, ", threads_, " threads");
    measurement.unit = "relative error";
    measurement.value = measurement.min = measurement.max = standard;
    measurement.limit = measurement.limit_min = measurement.limit_max = gram;
    measurement.limit_name = "gram form";
    Print(measurement, json_);
  }

  // Steps `count` matrices of 256 x 256: in one parameter, and in as many parameters of one matrix.
  void Small(int64_t count) {
    constexpr int64_t kSide = 256;
    MuonConfig config = Muon(NsForm::kStandard);
    config.layout.kind = MatrixLayoutKind::kBatched;
    SteppedParameter parameter(config, {static_cast<uint64_t>(count), kSide, kSide}, pool_);
    constexpr int64_t kLarge = 2048;
    StoredMatrix a = Stored(kLarge);
    StoredMatrix b = Stored(kLarge);
    StoredMatrix c(gemm_->StoredElements(kLarge, kLarge));
    ProductScratch scratch;
    const Limit product = {"one product of 2048", 2.0 * kLarge * kLarge * kLarge, [&] {
                             gemm_->MultiplyStored(
                                 {.rows = kLarge, .cols = kLarge, .inner = kLarge}, {a, b}, c,
                                 scratch);
                           }};
    const double flops = static_cast<double>(count) * FlopsOfStep({kSide, kSide});
    Report("muon_step", absl::StrCat(count, " x 256x256 bf16"), flops, product,
           [&] { parameter.Step(backend_); });
    std::vector<std::unique_ptr<SteppedParameter>> parameters;
    for (int64_t i = 0; i < count; ++i) {
      parameters.push_back(std::make_unique<SteppedParameter>(
          Muon(NsForm::kStandard), std::vector<uint64_t>{kSide, kSide}, pool_));
    }
    Report("muon_step", absl::StrCat(count, " parameters of 256x256 bf16"), flops, product, [&] {
      // As many at once as a shard takes (Backend::NumConcurrentUpdates).
      const int64_t at_once = 8 * threads_;
      for (int64_t first = 0; first < count; first += at_once) {
        std::vector<Update> updates;
        for (int64_t i = first; i < std::min(first + at_once, count); ++i) {
          updates.push_back(parameters[static_cast<size_t>(i)]->Next());
        }
        backend_.RunUpdates(absl::MakeSpan(updates));
      }
    });
  }

 private:
  static MatrixShape Parse(const std::string& text) {
    MatrixShape shape;
    CHECK(std::sscanf(text.c_str(), "%ldx%ld", &shape.rows, &shape.cols) == 2 && shape.rows > 0 &&
          shape.cols > 0)
        << "shape " << text << ", must be ROWSxCOLS";
    return shape;
  }

  static std::vector<uint64_t> Extents(MatrixShape shape) {
    return {static_cast<uint64_t>(shape.rows), static_cast<uint64_t>(shape.cols)};
  }

  StoredMatrix Stored(int64_t side) {
    StoredMatrix stored(gemm_->StoredElements(side, side));
    FloatTile tile;
    const std::vector<float> values = Values(pool_, kTileSide * kTileSide, 1);
    std::copy(values.begin(), values.end(), tile.values);
    for (int64_t row = 0; row < side; row += kTileSide) {
      for (int64_t col = 0; col < side; col += kTileSide) {
        gemm_->StoreTile({side, side, row, col}, tile, stored);
      }
    }
    return stored;
  }

  std::vector<float> Orthogonalized(const MuonConfig& config, MatrixShape shape,
                                    absl::Span<const float> x) {
    std::vector<float> lost(x.begin(), x.end());
    std::vector<float> out(x.size());
    NewtonSchulz(config.newton_schulz, {shape, absl::MakeSpan(lost), absl::nullopt}, *gemm_, pool_,
                 [&](int64_t first, absl::Span<const float> values) {
                   std::copy(values.begin(), values.end(), out.begin() + first);
                 });
    return out;
  }

  static double Distance(const std::vector<float>& x, const std::vector<float>& y) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      norm += static_cast<double>(y[i]) * y[i];
    }
    return std::sqrt(difference / norm);
  }

  void Report(const std::string& name, const std::string& what, double flops, const Limit& limit,
              const std::function<void()>& work) {
    const auto rounds = benchmark::MeasureByTurns(options_.rounds, work, limit.run);
    Measurement measurement;
    measurement.name = name;
    measurement.settings = absl::StrCat(what, ", ", threads_, " threads");
    measurement.unit = "nominal GFLOP/s";
    measurement.limit_name = limit.name;
    SetRates(rounds, 1e-9 * flops, 1e-9 * limit.flops, measurement);
    Print(measurement, json_);
  }

  const Options& options_;
  const int threads_;
  std::FILE* const json_;
  ThreadPool pool_;
  CpuBackend backend_;
  const std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<TilePeak> peak_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Speed of Muon steps beside the limits of the machine, measured by turns.");
  app.add_option("--rounds", options.rounds, "of each measurement (5)")->check(CLI::Range(5, 1000));
  app.add_option("--threads", options.threads, "numbers of threads (1,2)")->delimiter(',');
  app.add_option("--shapes", options.shapes, "of the matrices")->delimiter(',');
  app.add_option("--restarts", options.restarts, "of Gram form, of 5 steps (2,3)")
      ->delimiter(',')
      ->check(CLI::Range(1, 4));
  app.add_option("--small-matrices", options.small_matrices, "of 256x256, 0: none (64)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--gemm", options.gemm, "widest or onednn (widest)")
      ->check(CLI::IsMember({"widest", "onednn"}));
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const benchmark::JsonFile json = benchmark::OpenJson(options.json);
  for (const int threads : options.threads) {
    Benchmark benchmark(options, threads, json.get());
    for (const std::string& shape : options.shapes) benchmark.StandardForm(shape);
    for (const std::string& shape : options.shapes) {
      if (!benchmark.HasGramForm(shape)) continue;
      benchmark.GramForm(shape);
      benchmark.GramError(shape);
    }
    if (options.small_matrices > 0) benchmark.Small(options.small_matrices);
  }
  return 0;
}

}  // namespace
}  // namespace kaon::kernels

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::kernels::Main(argc, argv);
}
