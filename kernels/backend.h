// Backend: the numeric operations of the optimizer rules on one device. `cpu` always exists and
// defines the correct results; a plugin may be loaded at run time (architecture.md: tier is not
// backend). The creator owns a Backend. Several threads may use it concurrently on disjoint
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

// Divisors that turn a sum into the gradient, and options for the facts about it.
struct MeanScalars {
  float total_weight = 1;
  float loss_scale = 1;
  // Selects the keys of the digest; no number depends on it.
  uint32_t parameter_id = 0;
  // If false, sum_squares stays 0: no decision or report reads the norm of this gradient (rule
  // [T5]).
  bool takes_sum = true;
};

struct MeanFacts {
  GradNorm norm;
  // Digest of the mean by kernels/reduce/digest.h, with slot kGradientSlot.
  uint64_t digest = 0;
};

// Per-step scalars of one parameter's update.
struct UpdateScalars {
  double lr = 0;
  // Multiplies the gradient before anything else (rule [C9]). Exactly 1 leaves it bit-identical
  // (rule [C5]).
  double clip_factor = 1;
  // Number of this update of this parameter, from 1; the step counter of the rules' formulas.
  int64_t t = 1;
  // Selects the keys of the result's digests; no number depends on it.
  uint32_t parameter_id = 0;
};

// Outputs of an update. A rule that orthogonalizes can compute the weights before the decision that
// needs them, and the cheap state after it. kWeights and then kState, with otherwise equal
// arguments, give the bits of kAll. Other rules accept kAll only (CHECK).
enum class UpdatePart { kAll, kWeights, kState };

// Buffers of one parameter's update. The caller owns them. The gradient and every span of floats
// have the parameter's element count.
struct UpdateBuffers {
  // The update uses the fp32 values of the gradient, whatever its dtype.
  GradView grad;
  absl::Span<const float> param;
  // Either the same memory as `param`, or disjoint from it.
  absl::Span<float> new_param;
  // One buffer per slot, with the order and sizes of StateSlots(), aligned for float; updated in
  // place.
  absl::Span<const absl::Span<std::byte>> state;
  // Buffers that are not part of the output stay unchanged.
  UpdatePart part = UpdatePart::kAll;
};

// Why an update left the weights unchanged.
enum class UpdateFault {
  // No fault: new_param holds the update.
  kNone,
  // An element of the new weights would not be finite.
  kNotFinite,
  // The orthogonalized update of a matrix of rank r has a norm above 1.5 sqrt(r). No correct
  // Newton-Schulz result has one; MostOrthogonalNorm gives the exact bound.
  kTooLarge
};

struct UpdateResult {
  // Number of Newton-Schulz updates of the parameter, not of its blocks: 1 for the weights of Muon,
  // 0 for element-wise rules.
  int newton_schulz_calls = 0;
  // Digests by kernels/reduce/digest.h of the written data, computed during the write.
  // weights_digest is that of new_param as slot 0. slots_digest is the sum over the bytes of state
  // slots 1, 2, and so on. A digest is 0 if its data was not written.
  uint64_t weights_digest = 0;
  uint64_t slots_digest = 0;
  // Bits of the largest magnitude in new_param; 0 if it was not written.
  uint32_t largest_weight_bits = 0;
  // After a fault new_param holds the values of param, and the state is stepped all the same. If
  // both are the same memory, an element-wise rule has already overwritten it with values that are
  // not finite.
  UpdateFault fault = UpdateFault::kNone;
};

// Rule and shape of one parameter whose update is planned.
struct SizedUpdate {
  // Null for a parameter that no rule steps.
  const RuleConfig* rule = nullptr;
  absl::Span<const uint64_t> shape;
};

// Block size of the sum of squares in Backend::Fold, in elements.
inline constexpr int64_t kFoldBlockElements = 1024;

class Backend {
 public:
  virtual ~Backend() = default;

  // Returns "cpu" or the plugin's name, and the library of its matrix products, such as "cpu/amx".
  virtual std::string name() const = 0;

  // Folds a gradient g, the fp32 values of `src`, into a sum:
  //     acc[i] <- first ? weight * g[i] : fma(weight, g[i], acc[i])
  // Returns the index of the first non-finite g[i], or -1; accumulates all the same.
  // Adds the squares of g to *sum_squares, in blocks of kFoldBlockElements, to about fp32's
  // precision at any size. The result is not finite if an element is not.
  virtual int64_t Fold(DType dtype, const std::byte* src, float weight, bool first,
                       absl::Span<float> acc, double* sum_squares) = 0;

  // Divides a sum: acc[i] <- (acc[i] / total_weight) / loss_scale, each division in fp32 (rule
  // [T2]). A divisor of exactly 1 changes no bit. Returns the facts that ComputeGradNorm and
  // TensorDigest compute of the result, bit for bit.
  virtual MeanFacts FinishMean(const MeanScalars& scalars, absl::Span<float> acc) = 0;

  // Runs one update of one parameter. The caller has checked the arguments with ValidateRule; sizes
  // are CHECKed.
  virtual UpdateResult ApplyUpdate(const RuleConfig& rule, const UpdateScalars& scalars,
                                   absl::Span<const uint64_t> shape,
                                   const UpdateBuffers& buffers) = 0;

  // Calls update(i) once for each i in [0, n) and returns when all are done. For calls of
  // ApplyUpdate that are each too small for several threads. A backend with its own threads runs
  // them concurrently, one thread each, with the same bits as in sequence.
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

// Maximum number of elements of such a small update. Its Newton-Schulz products have at most three
// pieces, its element-wise loops a few.
inline constexpr int64_t kSmallUpdateElements = 512 * 512;

inline constexpr int kMaxThreads = 256;

struct BackendOptions {
  // "cpu", or NAME for a plugin libkaon_NAME.so, which dlopen looks for in `plugin_dir` (empty: on
  // the loader's path).
  std::string name = "cpu";
  // Library of the cpu backend's matrix products: "amx", "onednn" or "reference". Empty: amx if the
  // machine has it, else onednn.
  std::string gemm;
  // Instruction set of the cpu backend's own loops: "avx512", "avx2" or "scalar"; no result depends
  // on it. "widest": the widest set of the machine. It holds for the whole process from here on,
  // but not for matrix products (see `gemm`).
  std::string isa = "widest";
  // Compute threads of the cpu backend, including the caller; 1 .. kMaxThreads.
  int threads = 1;
  std::string plugin_dir;
};

// Creates a backend. INVALID_ARGUMENT for an unknown gemm or isa, and for threads out of range.
// NOT_FOUND for a missing plugin; names the library and the loader's reason. FAILED_PRECONDITION
// for a plugin of another interface version, and for a gemm or isa that this machine lacks.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options);

// Returns the instruction set of the cpu backend's own loops: "avx512", "avx2" or "scalar".
std::string ChosenIsa();

// Interface version. A plugin exports: extern "C" int kaon_backend_version(); extern "C" Backend*
// kaon_create_backend();
inline constexpr int kBackendVersion = 9;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_BACKEND_H_
