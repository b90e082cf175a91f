// Backend: memory and the numeric operations of the optimizer rules on one device. A device that
// fails ends the process with the reason: the shard restarts as after a crash. `cpu` always exists
// and defines the correct results; a plugin may be loaded at run time (architecture.md: tier is not
// backend). The creator owns a Backend. Several threads may use it concurrently on disjoint
// buffers. Results depend on the arguments alone, never on thread count or timing.
#ifndef KAON_KERNELS_BACKEND_H_
#define KAON_KERNELS_BACKEND_H_

#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/accumulation.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"
#include "kernels/product_form.h"
#include "kernels/region.h"
#include "kernels/update.h"

namespace kaon::kernels {

class Backend {
 public:
  virtual ~Backend() = default;

  // Returns "cpu" or the plugin's name, and the library of its matrix products, such as "cpu/amx".
  virtual std::string name() const = 0;
  // Returns everything but the build that the bits of results depend on: model of the processor or
  // device, library versions, chosen algorithms.
  virtual std::string device_class() const = 0;
  // Returns the form of each shape of symmetric products so far, for diagnostics.
  virtual std::vector<ProductForm> ProductForms() const { return {}; }

  // Memory.

  // Returns the space of the regions that the backend computes on.
  virtual Space space() const = 0;
  // Returns the name of this memory, as diagnostics show it, such as "cpu" or "cuda:0".
  virtual std::string memory_tier() const = 0;
  // Returns the bytes that exist; 0: unknown, the system's limit applies.
  virtual uint64_t capacity_bytes() const = 0;
  // Allocates `bytes` > 0 zeroed bytes of the backend's space, aligned for its vectors.
  // RESOURCE_EXHAUSTED with the arithmetic.
  virtual absl::StatusOr<Region> Allocate(uint64_t bytes) = 0;
  virtual void Free(Region region) = 0;
  // Allocates host memory that copies to and from the backend's space are fastest with; contents
  // are undefined. RESOURCE_EXHAUSTED with the arithmetic.
  virtual absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) = 0;
  virtual void FreeStaging(absl::Span<std::byte> staging) = 0;

  // Copies and facts of memory. Each is done when it returns. Sizes must agree (CHECK).

  virtual void CopyIn(absl::Span<const std::byte> from, Region to) = 0;
  virtual void CopyOut(ConstRegion from, absl::Span<std::byte> to) = 0;
  virtual void Copy(ConstRegion from, Region to) = 0;
  // Writes the fp32 values of `floats` to host memory, rounded to `dtype`.
  virtual void RoundOut(ConstRegion floats, DType dtype, std::byte* to) = 0;
  // Same to the backend's space; `to` is aligned for `dtype`.
  virtual void Round(ConstRegion floats, DType dtype, Region to) {
    CHECK_EQ(to.size(), floats.num_floats() * SizeOf(dtype));
    RoundOut(floats, dtype, to.host_bytes().data());
  }
  // Returns the digest by kernels/reduce/digest.h of all bytes, as slot `slot` of a parameter.
  virtual uint64_t Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) = 0;
  // Returns the bits of the largest magnitude of the fp32 values.
  virtual uint32_t LargestMagnitude(ConstRegion floats) = 0;

  // Gradients.

  // Returns a new accumulation into `sum`, fp32, which outlives it, as does the backend.
  virtual std::unique_ptr<Accumulation> Accumulate(Region sum) = 0;

  // Updates.

  // Runs updates on disjoint buffers and returns when all are done. Sizes are CHECKed. The bits are
  // those of each update alone. A single update may use all threads; several run concurrently.
  virtual void RunUpdates(absl::Span<Update> updates) = 0;
  // Runs one update.
  UpdateResult ApplyUpdate(const RuleConfig& rule, const UpdateScalars& scalars,
                           absl::Span<const uint64_t> shape, const UpdateBuffers& buffers) {
    Update update = {&rule, scalars, shape, buffers, {}};
    RunUpdates(absl::MakeSpan(&update, 1));
    return update.result;
  }

  // Returns how many of `updates`, the first ones, to run concurrently in one RunUpdates. At least
  // 1: the first alone. `updates` is not empty. No bit depends on the number.
  virtual size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const {
    static_cast<void>(updates);
    return 1;
  }
  // Returns an upper bound on the memory of the backend's space that `updates` allocate, run
  // concurrently, apart from their buffers. It holds for any Newton-Schulz form, while new_param is
  // not param, and in host memory for OrthogonalityError of one of them.
  virtual uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const = 0;
  // Reserves what these updates, as many at once as NumConcurrentUpdates says, need in any other
  // space, and may allocate their workspace. It replaces the reservation before, and frees it.
  // RESOURCE_EXHAUSTED with the arithmetic.
  virtual absl::Status Reserve(absl::Span<const SizedUpdate> updates) {
    static_cast<void>(updates);
    return absl::OkStatus();
  }
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
  // Ordinal of the plugin's device.
  int device = 0;
  // Keeps all tensors in host memory: the plugin's device computes Newton-Schulz, the cpu backend
  // the rest (offload_backend.h). No effect on the cpu backend alone.
  bool host_memory = false;
  // Upper bound on the device memory that `host_memory` uses; 0: 90 % of what the device has.
  uint64_t device_memory_bytes = 0;
  std::string plugin_dir;
};

// Creates a backend. INVALID_ARGUMENT for an unknown gemm or isa, and for threads out of range.
// NOT_FOUND for a missing plugin; names the library and the loader's reason. FAILED_PRECONDITION
// for a plugin of another interface version or without a usable device, and for a gemm or isa that
// this machine lacks. RESOURCE_EXHAUSTED if the device has less than device_memory_bytes.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options);

// Returns what is built into this program, whether or not the machine has it: backends, libraries
// of matrix products and instruction sets.
std::string BuiltInFeatures();

// Returns the instruction set of the cpu backend's own loops: "avx512", "avx2" or "scalar".
std::string ChosenIsa();

// Interface version. A plugin exports extern "C" int kaon_backend_version() and
// extern "C" Backend* kaon_create_backend(const BackendOptions*, std::string* error).
// The second returns null with an error that says why.
inline constexpr int kBackendVersion = 13;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_BACKEND_H_
