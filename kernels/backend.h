// Where rules run: bulk numeric operations on one device. `cpu` is always there and is the
// definition of correct; another may be loaded at run time (architecture.md: tier is not backend).
// A Backend is owned by its creator and safe to use from several threads at once on disjoint
// buffers. Results depend on the arguments alone, never on thread count or timing.
#ifndef KAON_KERNELS_BACKEND_H_
#define KAON_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/grad_view.h"
#include "kernels/optimizer_rule.h"
#include "kernels/reduce/grad_norm.h"

namespace kaon::kernels {

// What a sum is divided by to be the gradient, and what is to be said of that.
struct MeanScalars {
  float total_weight = 1;
  float loss_scale = 1;
  // Keys the digest; no number depends on it.
  uint32_t parameter_id = 0;
  // Else sum_squares stays 0: for a gradient whose norm nobody reads ([T5]).
  bool takes_sum = true;
};

struct MeanFacts {
  GradNorm norm;
  // kernels/reduce/digest.h over the mean, as kGradientSlot.
  uint64_t digest = 0;
};

// Per-step scalars of one parameter's update.
struct UpdateScalars {
  double lr = 0;
  // Multiplies the gradient before anything else; exactly 1 leaves it bit-identical ([C5], [C9]).
  double clip_factor = 1;
  // Number of this update for this parameter, from 1 ([A1], [M6]).
  int64_t t = 1;
  // Keys the digests of the result; no number depends on it.
  uint32_t parameter_id = 0;
};

// What an update writes. The weights of a rule that orthogonalizes may be computed ahead of the
// decision that needs them, and the state, which is cheap, after it: kWeights and then kState, with
// the same arguments otherwise, give the bits of kAll. Other rules only know kAll (CHECK).
enum class UpdatePart { kAll, kWeights, kState };

// Buffers of one parameter's update; the gradient and every span of floats have the parameter's
// element count.
struct UpdateBuffers {
  // Whatever its dtype, the update is that of its fp32 values.
  GradView grad;
  absl::Span<const float> param;
  // May be the same memory as `param`, else must not overlap it.
  absl::Span<float> new_param;
  // As StateSlots() orders and sizes them, aligned for float; updated in place.
  absl::Span<const absl::Span<std::byte>> state;
  // What is not written stays as it is.
  UpdatePart part = UpdatePart::kAll;
};

// Why an update left the weights as they were.
enum class UpdateFault {
  // It did not: new_param holds the update.
  kNone,
  // An element of the new weights would not be finite.
  kNotFinite,
  // The orthogonalized update of a matrix of rank r has a norm above 1.5 sqrt(r), which no
  // correct Newton-Schulz gives (MostOrthogonalNorm says it exactly).
  kTooLarge
};

struct UpdateResult {
  // Updates of the parameter that went through Newton-Schulz, however many blocks it has: 1 for
  // the weights of Muon, 0 for element-wise rules.
  int newton_schulz_calls = 0;
  // kernels/reduce/digest.h over what was written, taken as it is written: new_param as slot 0;
  // every state slot's bytes as slots 1, 2, ..., added up. 0 of what was not.
  uint64_t weights_digest = 0;
  uint64_t slots_digest = 0;
  // Bits of the largest magnitude in new_param; 0 where it was not written.
  uint32_t largest_weight_bits = 0;
  // Unless kNone, new_param holds the values of param, and the state is stepped all the same. Where
  // both are the same memory, an element-wise rule has overwritten it with what is not finite.
  UpdateFault fault = UpdateFault::kNone;
};

// Rule and shape of one parameter whose update is planned.
struct SizedUpdate {
  // Null for a parameter that no rule steps.
  const RuleConfig* rule = nullptr;
  absl::Span<const uint64_t> shape;
};

// Of a sum of squares that Backend::Fold takes.
inline constexpr int64_t kFoldBlockElements = 1024;

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu" or the plugin's name, with what does its matrix products: "cpu/amx".
  virtual std::string name() const = 0;

  // acc[i] <- weight * g[i] when `first`, else fma(weight, g[i], acc[i]), g the fp32 value of src.
  // Returns the index of the first non-finite g[i], or -1; accumulates all the same. Adds the
  // squares of g to *sum_squares, to about fp32's precision at any size, block by block of
  // kFoldBlockElements from `src` on; not finite if an element is not.
  virtual int64_t Fold(DType dtype, const std::byte* src, float weight, bool first,
                       absl::Span<float> acc, double* sum_squares) = 0;

  // acc[i] <- (acc[i] / total_weight) / loss_scale, each division in fp32 ([T2]); a divisor of
  // exactly 1 changes no bit. Says of the result what ComputeGradNorm and TensorDigest would, in
  // the same bits.
  virtual MeanFacts FinishMean(const MeanScalars& scalars, absl::Span<float> acc) = 0;

  // One update of one parameter. Arguments are checked by ValidateRule beforehand; sizes by CHECK.
  virtual UpdateResult ApplyUpdate(const RuleConfig& rule, const UpdateScalars& scalars,
                                   absl::Span<const uint64_t> shape,
                                   const UpdateBuffers& buffers) = 0;

  // update(i) once for each i in [0, n), done when it returns: calls of ApplyUpdate that are each
  // too small for several threads. A backend with threads of its own runs them side by side, each
  // in one thread, with the same bits as one after the other.
  virtual void RunUpdates(int64_t n, absl::FunctionRef<void(int64_t)> update) {
    for (int64_t i = 0; i < n; ++i) update(i);
  }

  // Returns how many of `updates`, the first ones, to run concurrently in one RunUpdates. At least
  // 1: the first alone. `updates` is not empty. No bit depends on the number.
  virtual size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const {
    static_cast<void>(updates);
    return 1;
  }

  // Returns an upper bound on the host memory that `updates` allocate, run concurrently, apart from
  // their buffers. It holds for any Newton-Schulz form, while new_param is not param, and for
  // OrthogonalityError of one of them. 0: the backend allocates on its device alone.
  virtual uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const {
    static_cast<void>(updates);
    return 0;
  }

  // Returns the name of the memory that holds the buffers, as diagnostics show it.
  virtual std::string memory_tier() const { return "cpu"; }
};

// Updates of at most so many elements are those: products of Newton-Schulz are cut in three at
// most, element-wise rules in a few pieces.
inline constexpr int64_t kSmallUpdateElements = 512 * 512;

inline constexpr int kMaxThreads = 256;

struct BackendOptions {
  // "cpu", or NAME for a plugin libkaon_NAME.so found by dlopen in `plugin_dir` (or the loader's
  // path if empty).
  std::string name = "cpu";
  // Matrix products of the cpu backend: "amx", "onednn" or "reference"; empty: amx where the
  // machine has it, else onednn.
  std::string gemm;
  // Instruction set of the cpu backend's own loops: "widest" the machine has, or to see that it
  // makes no difference "avx512", "avx2" or "scalar". Of the whole process, from here on; not of
  // matrix products, which `gemm` chooses.
  std::string isa = "widest";
  // Compute threads of the cpu backend, the caller's included; 1 .. kMaxThreads.
  int threads = 1;
  std::string plugin_dir;
};

// INVALID_ARGUMENT for an unknown gemm or isa and for threads out of range, NOT_FOUND naming the
// library and the loader's reason for a missing plugin, FAILED_PRECONDITION for a plugin of another
// interface version and for a gemm or isa that this machine does not have.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options);

// What the cpu backend's own loops run on now: "avx512", "avx2" or "scalar".
std::string ChosenIsa();

// What a plugin exports: extern "C" int kaon_backend_version(); extern "C" Backend*
// kaon_create_backend();
inline constexpr int kBackendVersion = 9;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_BACKEND_H_
