#include "kernels/cpu/cpu_backend.h"

#include <glog/logging.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/muon_step.h"
#include "kernels/cpu/parallel_ranges.h"
#include "kernels/cpu/processor_model.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/update_workspace.h"
#include "kernels/float_bits.h"
#include "kernels/gemm/tiled_gemm.h"
#include "kernels/mutation.h"
#include "kernels/reduce/cpu_accumulation.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/digest_products.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/rules/element_wise_kernel.h"
#include "kernels/rules/element_wise_rules.h"
#include "kernels/state_codec.h"
#include "kernels/update_fault.h"
#include "kernels/update_sizes.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

float* Floats(absl::Span<std::byte> slot) { return reinterpret_cast<float*>(slot.data()); }

// Number of elements stepped at a time. Prefetched data is then still in the first-level cache when
// it is read, and so is encoded state while it is fp32.
constexpr int64_t kChunk = kDigestBlock;
static_assert(kChunk % (2 * kStateGroup) == 0, "encoded chunks end where a digested word does");

// One slot of a rule's state as stored, with the buffers for a chunk of it.
struct StoredSlot {
  absl::Span<std::byte> bytes;
  StateDType dtype = StateDType::kFloat32;
  TensorDigester digester;
  uint32_t root_seed = 0;

  // fp32 is stepped in place.
  bool encoded() const { return dtype != StateDType::kFloat32; }
  // Encodes `values` at position `first`, and digests the encoded bytes.
  uint64_t Encode(absl::Span<const float> values, int64_t first) const {
    EncodeState(dtype, values, first, bytes, root_seed);
    const int64_t begin = StateBytes(dtype, first);
    const int64_t end = StateBytes(dtype, first + static_cast<int64_t>(values.size()));
    return digester.OfBytes(bytes.subspan(begin, end - begin), begin);
  }
};

template <typename Config>
std::vector<StoredSlot> StoredSlots(const Config& config, int num_slots,
                                    const UpdateScalars& scalars, const UpdateBuffers& buffers) {
  std::vector<StoredSlot> slots;
  for (int k = 0; k < num_slots; ++k) {
    slots.push_back({buffers.state[k].host_bytes(), SlotDType(config, k),
                     TensorDigester(scalars.parameter_id, static_cast<uint32_t>(k) + 1),
                     RootSeedOf(scalars.parameter_id, scalars.t)});
  }
  return slots;
}

// One update of one parameter. Any range of it can be stepped separately.
template <typename Rule>
struct ElementWiseStep {
  typename Rule::Scalars scalars;
  int num_slots;
  std::vector<StoredSlot> slots;
  TensorDigester weights;
  GradView grad;
  absl::Span<const float> param;
  absl::Span<float> new_param;

  // In place, a line of weights has just been read and is written back to the same address.
  bool streams() const {
    constexpr uintptr_t kLineBytes = 64;
    return new_param.data() != param.data() &&
           new_param.size() * sizeof(float) >= kLeastStreamedBytes &&
           reinterpret_cast<uintptr_t>(new_param.data()) % kLineBytes == 0;
  }
};

// Returns the chunk from `first` on, in place.
template <typename Rule>
void FindNext(const ElementWiseStep<Rule>& step, int64_t first, NextBytes* next) {
  constexpr int64_t kLine = NextBytes::kLine;
  next[0] = {step.grad.at(first), kLine * static_cast<int64_t>(SizeOf(step.grad.dtype()))};
  next[1] = {reinterpret_cast<const std::byte*>(step.param.data() + first),
             kLine * static_cast<int64_t>(sizeof(float))};
  for (int k = 0; k < step.num_slots; ++k) {
    const StoredSlot& slot = step.slots[k];
    next[2 + k] = {slot.bytes.data() + StateBytes(slot.dtype, first),
                   StateBytes(slot.dtype, kChunk) * kLine / kChunk};
  }
}

// Steps elements [begin, end) in chunks. The bits are the same as without chunks: elements are
// independent, and chunks end at group boundaries.
template <typename Rule>
UpdateResult StepRange(const ElementWiseStep<Rule>& step, int64_t begin, int64_t end) {
  const InstructionSet isa = ChosenInstructionSet().load(std::memory_order_relaxed);
  UpdateResult result;
  float decoded[Rule::kMaxSlots][kChunk];
  const bool streams = step.streams();
  for (int64_t first = begin; first < end; first += kChunk) {
    ElementWiseArrays<Rule> chunk;
    chunk.n = std::min(kChunk, end - first);
    chunk.grad = step.grad.at(first);
    chunk.grad_dtype = step.grad.dtype();
    chunk.param = step.param.data() + first;
    chunk.new_param = step.new_param.data() + first;
    chunk.streams = streams;
    for (int k = 0; k < step.num_slots; ++k) {
      const StoredSlot& slot = step.slots[k];
      chunk.state[k] = slot.encoded() ? decoded[k] : Floats(slot.bytes) + first;
      if (!slot.encoded()) continue;
      DecodeState(slot.dtype, slot.bytes, first, absl::MakeSpan(decoded[k], chunk.n));
    }
    chunk.has_next = first + 2 * kChunk <= end;
    if (chunk.has_next) FindNext(step, first + kChunk, chunk.next);
    uint64_t sums[1 + Rule::kMaxSlots];
    result.largest_weight_bits = std::max(
        result.largest_weight_bits, RunElementWise(isa, step.num_slots, step.scalars, chunk, sums));
    const auto block = static_cast<uint64_t>(first / kDigestBlock);
    result.weights_digest += step.weights.OfProducts(sums[0], chunk.n, block);
    // The digest of an encoded slot covers the stored bytes, not the values that the kernel has
    // summed.
    for (int k = 0; k < step.num_slots; ++k) {
      const StoredSlot& slot = step.slots[k];
      result.slots_digest += slot.encoded()
                                 ? slot.Encode(absl::MakeConstSpan(decoded[k], chunk.n), first)
                                 : slot.digester.OfProducts(sums[1 + k], chunk.n, block);
    }
  }
  if (streams) EndStreaming();
  return result;
}

// Number of elements that one thread steps at a time.
constexpr int64_t kPiece = 128 * kChunk;
static_assert(kPiece % kDigestBlock == 0, "chunks are blocks of the digest");

template <typename Rule>
UpdateResult ApplyElementWise(const typename Rule::Config& config, const UpdateScalars& scalars,
                              const UpdateBuffers& buffers, ThreadPool& pool) {
  const int num_slots = Rule::NumSlots(config);
  const ElementWiseStep<Rule> step = {
      Rule::Prepare(config, scalars.lr, scalars.clip_factor, scalars.t),
      num_slots,
      StoredSlots(config, num_slots, scalars, buffers),
      TensorDigester(scalars.parameter_id, kWeightSlot),
      buffers.grad,
      buffers.param.host_floats(),
      buffers.new_param.host_floats()};
  const auto n = static_cast<int64_t>(step.param.size());
  UpdateResult result = SumOverRanges(
      pool, n, kPiece, [&](int64_t begin, int64_t end) { return StepRange(step, begin, end); });
  if (!IsFiniteMagnitude(result.largest_weight_bits)) {
    KeepWeights(UpdateFault::kNotFinite, scalars.parameter_id, buffers, result);
  }
  return result;
}

// Returns the buffers with the gradient as fp32; converts it into `widened` if necessary.
UpdateBuffers WithFloats(const UpdateBuffers& buffers, std::vector<float>& widened) {
  UpdateBuffers wide = buffers;
  if (buffers.grad.dtype() == DType::kFloat32) return wide;
  widened.resize(buffers.grad.size());
  ToFloat(buffers.grad.dtype(), buffers.grad.at(0), absl::MakeSpan(widened));
  wide.grad = widened;
  return wide;
}

// Most elements of concurrent updates for each thread: tens of milliseconds of Newton-Schulz.
constexpr uint64_t kMostElementsPerThread = uint64_t{512} << 10;

uint64_t ElementsOf(absl::Span<const uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

// Returns the work of an update in elements of an element-wise rule. A matrix of 256x256 takes 77
// ns per element in one thread, AdamW 2.3.
uint64_t WorkOf(const SizedUpdate& update) {
  constexpr uint64_t kOfNewtonSchulz = 32;
  if (update.rule == nullptr) return 0;
  const bool muon = std::holds_alternative<MuonConfig>(*update.rule);
  return (muon ? kOfNewtonSchulz : 1) * ElementsOf(update.shape);
}

// From so many bytes of workspace on, an update first releases the memory that the C library keeps
// free for the next chunks. The release takes some milliseconds, much less than its products.
constexpr uint64_t kWorkspaceWorthReleasing = uint64_t{16} << 20;

absl::Status Refused(uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("host memory: the system refused ", bytes, " bytes"));
}

}  // namespace

CpuBackend::CpuBackend(std::unique_ptr<Gemm> gemm, int threads) : pool_(threads) {
  CHECK(gemm != nullptr);
  gemm_ = std::make_unique<TiledGemm>(std::move(gemm), pool_);
}

CpuBackend::CpuBackend(const MakeGemm& make_gemm, int threads)
    : pool_(threads), gemm_(make_gemm(pool_)) {}

std::string CpuBackend::name() const { return absl::StrCat("cpu/", gemm_->name()); }

std::string CpuBackend::device_class() const { return ProcessorModel(); }

absl::StatusOr<Region> CpuBackend::Allocate(uint64_t bytes) {
  const absl::Span<std::byte> memory = AllocateZeroedHost(bytes);
  if (memory.empty()) return Refused(bytes);
  return Region(memory);
}

void CpuBackend::Free(Region region) { FreeHost(region.host_bytes()); }

absl::StatusOr<absl::Span<std::byte>> CpuBackend::AllocateStaging(uint64_t bytes) {
  const absl::Span<std::byte> memory = AllocateHost(bytes);
  if (memory.empty()) return Refused(bytes);
  return memory;
}

void CpuBackend::FreeStaging(absl::Span<std::byte> staging) { FreeHost(staging); }

void CpuBackend::CopyIn(absl::Span<const std::byte> from, Region to) { Copy(from, to); }

void CpuBackend::CopyOut(ConstRegion from, absl::Span<std::byte> to) { Copy(from, to); }

void CpuBackend::Copy(ConstRegion from, Region to) {
  CHECK(from.size() == to.size()) << from.size() << " bytes to " << to.size();
  if (from.empty()) return;
  std::memcpy(to.host_bytes().data(), from.host_bytes().data(), from.size());
}

void CpuBackend::RoundOut(ConstRegion floats, DType dtype, std::byte* to) {
  FromFloat(dtype, floats.host_floats(), to);
}

uint64_t CpuBackend::Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) {
  return TensorDigester(parameter_id, slot).OfBytes(bytes.host_bytes(), 0);
}

uint32_t CpuBackend::LargestMagnitude(ConstRegion floats) {
  return LargestMagnitudeBits(floats.host_floats());
}

std::unique_ptr<Accumulation> CpuBackend::Accumulate(Region sum) {
  return std::make_unique<CpuAccumulation>(sum.host_floats(), pool_);
}

UpdateResult CpuBackend::Run(const Update& update) {
  const RuleConfig& rule = *update.rule;
  const UpdateScalars& scalars = update.scalars;
  const absl::Span<const uint64_t> shape = update.shape;
  const UpdateBuffers& buffers = update.buffers;
  CheckUpdateSizes(update);
  // The workspace of one thread is that of the matrices. Without weights there are none.
  if (buffers.part != UpdatePart::kState &&
      UpdateWorkspaceBytes(name(), 1, rule, shape) >= kWorkspaceWorthReleasing) {
    malloc_trim(0);
  }
  std::vector<float> widened;
  return std::visit(
      [&](const auto& config) {
        using Config = std::decay_t<decltype(config)>;
        if constexpr (std::is_same_v<Config, MuonConfig>) {
          return ApplyMuon(config, scalars, shape, WithFloats(buffers, widened), *gemm_, pool_);
        } else {
          using Rule = typename FindRule<Config, ElementWiseRules>::type;
          CHECK(buffers.part == UpdatePart::kAll) << Rule::kName << " is not stepped in parts";
          return ApplyElementWise<Rule>(config, scalars, buffers, pool_);
        }
      },
      rule);
}

void CpuBackend::RunUpdates(absl::Span<Update> updates) {
  pool_.ParallelFor(static_cast<int64_t>(updates.size()),
                    [&](int64_t i) { updates[i].result = Run(updates[i]); });
}

size_t CpuBackend::NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const {
  const auto threads = static_cast<uint64_t>(pool_.threads());
  size_t count = 1;
  if (threads <= 1) return count;
  uint64_t elements = 0;
  uint64_t work = 0;
  uint64_t most = 0;
  for (size_t i = 0; i < updates.size(); ++i) {
    const uint64_t size = ElementsOf(updates[i].shape);
    elements += size;
    if (size > static_cast<uint64_t>(kSmallUpdateElements)) break;
    if (elements > threads * kMostElementsPerThread) break;
    work += WorkOf(updates[i]);
    most = std::max(most, WorkOf(updates[i]));
    if (most * threads <= work) count = i + 1;
  }
  return count;
}

uint64_t CpuBackend::WorkspaceBytes(absl::Span<const SizedUpdate> updates) const {
  const auto threads = static_cast<uint32_t>(pool_.threads());
  const uint32_t threads_of_each = updates.size() > 1 ? 1 : threads;
  std::vector<uint64_t> bytes;
  for (const SizedUpdate& update : updates) {
    if (update.rule == nullptr) continue;
    bytes.push_back(UpdateWorkspaceBytes(name(), threads_of_each, *update.rule, update.shape));
  }
  // At most one update for each thread runs at a time: those that take most.
  std::sort(bytes.begin(), bytes.end(), std::greater<>());
  bytes.resize(std::min<size_t>(bytes.size(), threads));
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

}  // namespace kaon::kernels
