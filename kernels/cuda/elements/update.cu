#include "kernels/cuda/elements/digest_sum.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/elements/stored_state.h"
#include "kernels/cuda/elements/update.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/reduce/digest.h"

namespace kaon::kernels::cuda {
namespace {

template <typename Rule>
struct UpdateArguments {
  typename Rule::Scalars scalars;
  ElementWiseUpdate update;
  uint64_t weights_key;
  uint64_t slot_keys[3];
  bool vector;
};

// One turn: four elements per thread.
template <typename Rule, int num_slots, StateDType momentum, StateDType second_moment>
class UpdateTurn {
 public:
  KAON_DEVICE UpdateTurn(const UpdateArguments<Rule>& arguments, int64_t first)
      : arguments_(arguments),
        first_(first),
        count_(NumOfFour(first, arguments.update.num_elements)) {}

  // Steps the elements, and adds what it writes to `weights` and `slots`.
  KAON_DEVICE void Run(DigestSum& weights, DigestSum* slots, uint32_t& largest) const {
    const ElementWiseUpdate& update = arguments_.update;
    const bool vector = arguments_.vector;
    const Four<float> grad = LoadFourAs(update.grad_dtype, update.grad, first_, count_, vector);
    const Four<float> param = LoadFour(update.param + first_, count_, vector);
    Four<float> state[num_slots > 0 ? num_slots : 1];
    if constexpr (num_slots > 0) {
      state[0] = StoredState<momentum>::Load(update.state[0], first_, count_, vector);
    }
    for (int k = 1; k < num_slots; ++k) {
      state[k] = StoredState<second_moment>::Load(update.state[k], first_, count_, vector);
    }
    Four<float> written;
    for (int i = 0; i < 4; ++i) {
      float slot[Rule::kMaxSlots] = {};
      for (int k = 0; k < num_slots; ++k) slot[k] = state[k].of[i];
      written.of[i] = Rule::Element(arguments_.scalars, grad.of[i], param.of[i], slot);
      for (int k = 0; k < num_slots; ++k) {
        if (!Has(SeededBug::kStaleSlot) || k != 1) state[k].of[i] = slot[k];
      }
      const uint32_t magnitude = BitsOf(written.of[i]) & 0x7fffffffu;
      if (i < count_ && magnitude > largest) largest = magnitude;
    }
    StoreFour(written, update.new_param + first_, count_, vector);
    weights.AddFour(written, count_, first_);
    if constexpr (num_slots > 0) {
      StoredState<momentum>::Store(state[0], update.state[0], first_, count_, vector, slots[0]);
    }
    for (int k = 1; k < num_slots; ++k) {
      if constexpr (second_moment == StateDType::kSqrtUInt8) {
        StoredState<second_moment>::Store(state[k], update.state[k], first_, count_,
                                          update.root_seed, slots[k]);
      } else {
        StoredState<second_moment>::Store(state[k], update.state[k], first_, count_, vector,
                                          slots[k]);
      }
    }
  }

 private:
  const UpdateArguments<Rule>& arguments_;
  const int64_t first_;
  const int count_;
};

struct UpdateShared {
  DigestTable table;
  OfWarps<uint64_t> sums[2];
  OfWarps<uint32_t> largest;
};

template <typename Rule, int num_slots, StateDType momentum, StateDType second_moment>
__global__ void __launch_bounds__(kThreads) UpdateKernel(const UpdateArguments<Rule> arguments) {
  UpdateShared& shared = SharedMemory<UpdateShared>();
  const DigestTable& table = shared.table;
  FillDigestTable(shared.table);
  __syncthreads();
  DigestSum weights(table, arguments.weights_key);
  DigestSum slots[3] = {DigestSum(table, arguments.slot_keys[0]),
                        DigestSum(table, arguments.slot_keys[1]),
                        DigestSum(table, arguments.slot_keys[2])};
  uint32_t largest = 0;
  for (int64_t turn = int64_t{blockIdx.x} * kTurn; turn < arguments.update.num_elements;
       turn += int64_t{gridDim.x} * kTurn) {
    UpdateTurn<Rule, num_slots, momentum, second_moment>(arguments, turn + 4 * threadIdx.x)
        .Run(weights, slots, largest);
  }
  uint64_t slots_sum = 0;
  for (int k = 0; k < num_slots; ++k) slots_sum += slots[k].sum();
  UpdateFacts& facts = *arguments.update.facts;
  AddOfBlock(weights.sum(), shared.sums[0], &facts.weights_digest);
  if (num_slots > 0) AddOfBlock(slots_sum, shared.sums[1], &facts.slots_digest);
  RaiseByBlock(largest, shared.largest, &facts.largest_weight_bits);
}

template <typename Rule, int num_slots, StateDType momentum>
void StepMoments(Stream& stream, const UpdateArguments<Rule>& arguments) {
  constexpr StateDType kFloat32 = StateDType::kFloat32;
  constexpr StateDType kRoots = StateDType::kSqrtUInt8;
  const LaunchShape shape = {BlocksFor(arguments.update.num_elements), kThreads};
  if constexpr (num_slots > 1) {
    if (arguments.update.second_moment_dtype == kRoots) {
      return Launch(stream, shape, UpdateKernel<Rule, num_slots, momentum, kRoots>, arguments);
    }
  }
  Launch(stream, shape, UpdateKernel<Rule, num_slots, momentum, kFloat32>, arguments);
}

template <typename Rule, int num_slots>
void StepSlots(Stream& stream, const UpdateArguments<Rule>& arguments) {
  if constexpr (num_slots > 0) {
    const StateDType momentum = arguments.update.momentum_dtype;
    if (momentum == StateDType::kBFloat16) {
      return StepMoments<Rule, num_slots, StateDType::kBFloat16>(stream, arguments);
    }
    if (momentum == StateDType::kInt8) {
      return StepMoments<Rule, num_slots, StateDType::kInt8>(stream, arguments);
    }
  }
  StepMoments<Rule, num_slots, StateDType::kFloat32>(stream, arguments);
}

template <typename Rule, int at>
void Dispatch(Stream& stream, int num_slots, const UpdateArguments<Rule>& arguments) {
  if constexpr (at < Rule::kMaxSlots) {
    if (num_slots > at) return Dispatch<Rule, at + 1>(stream, num_slots, arguments);
  }
  StepSlots<Rule, at>(stream, arguments);
}

}  // namespace

template <typename Rule>
void StepElementWise(Stream& stream, const typename Rule::Scalars& scalars, int num_slots,
                     const ElementWiseUpdate& update) {
  UpdateArguments<Rule> arguments = {};
  arguments.scalars = scalars;
  arguments.update = update;
  arguments.weights_key = TensorDigestKey(update.parameter_id, kWeightSlot);
  arguments.vector = IsVectorAligned(update.grad) && IsVectorAligned(update.param) &&
                     IsVectorAligned(update.new_param);
  for (int k = 0; k < num_slots; ++k) {
    arguments.slot_keys[k] = TensorDigestKey(update.parameter_id, static_cast<uint32_t>(k) + 1);
    arguments.vector &= IsVectorAligned(update.state[k]);
  }
  Dispatch<Rule, Rule::kMinSlots>(stream, num_slots, arguments);
}

template void StepElementWise<AdamW>(Stream&, const AdamW::Scalars&, int, const ElementWiseUpdate&);
template void StepElementWise<Sgd>(Stream&, const Sgd::Scalars&, int, const ElementWiseUpdate&);
template void StepElementWise<Lion>(Stream&, const Lion::Scalars&, int, const ElementWiseUpdate&);

}  // namespace kaon::kernels::cuda
