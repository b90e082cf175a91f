#include "server/shard/snapshot/state_freeze.h"

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/mutex.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"
#include "server/mutation/mutation.h"
#include "server/tier/backend_memory.h"

namespace kaon::shard {

namespace {

// Returns true if `tensor` sorts before these names.
bool Precedes(uint32_t parameter_id, absl::string_view role, uint32_t other_id,
              absl::string_view other_role) {
  return parameter_id != other_id ? parameter_id < other_id : role < other_role;
}

absl::StatusOr<tier::TensorPlace> PlaceOf(const StoredParameter& parameter,
                                          const checkpoint::StateTensor& tensor) {
  tier::TensorPlace place = {parameter.place.home, parameter.place.unit,
                             parameter.place.home->newest(parameter.place.unit), 0};
  uint64_t has = parameter.weight_bytes();
  if (tensor.role != checkpoint::kWeightRole) has = 0;
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    if (parameter.state_slots[i].name != tensor.role) continue;
    place.tensor = i + 1;
    has = static_cast<uint64_t>(parameter.state_slots[i].num_bytes);
  }
  const uint64_t size = checkpoint::StateBytes(tensor.dtype, tensor.num_elements);
  if (has == size) return place;
  return absl::InternalError(absl::StrCat("parameter ", parameter.name, " ", tensor.role, " has ",
                                          has, " bytes in memory, expecting ", size));
}

}  // namespace

// All tensors of a freeze. Until it is read, a tensor refers to its home or to its copy.
class StateFreeze::Tensors {
 public:
  struct Tensor {
    uint32_t parameter_id = 0;
    std::string role;
    uint64_t num_bytes = 0;
    tier::TensorPlace live;
    tier::BackendMemory copy;
    uint64_t read_bytes = 0;

    bool is_read() const { return read_bytes == num_bytes; }
    bool is_copied() const { return !copy.region().empty(); }
  };

  Tensors(kernels::Backend& backend, uint64_t copy_bytes)
      : backend_(backend), copy_bytes_(copy_bytes) {}

  // Call it in order of (parameter_id, role), before the object is shared.
  void Add(Tensor tensor) {
    MutexLock lock(mu_);
    tensors_.push_back(std::move(tensor));
  }

  absl::Status Read(uint32_t parameter_id, absl::string_view role, uint64_t offset,
                    absl::Span<char> to) {
    MutexLock lock(mu_);
    if (ended_) return absl::CancelledError("the shard gave up the state that was being read");
    const auto found = FindLocked(parameter_id, role);
    if (found == tensors_.end() || found->parameter_id != parameter_id || found->role != role) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter_id ", parameter_id, " ", role, " is no tensor of this shard"));
    }
    if (offset != found->read_bytes || to.size() > found->num_bytes - offset) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter_id ", parameter_id, " ", role, ": ", to.size(), " bytes from ", offset,
          " on read, expecting from ", found->read_bytes, " and at most to ", found->num_bytes));
    }
    KAON_RETURN_IF_ERROR(
        CopyOut(*found, offset, {reinterpret_cast<std::byte*>(to.data()), to.size()}));
    found->read_bytes += to.size();
    if (!found->is_read()) return absl::OkStatus();
    if (found->is_copied()) copied_bytes_ -= found->num_bytes;
    found->copy = {};
    room_.NotifyAll();
    return absl::OkStatus();
  }

  void BeforeWrite(uint32_t parameter_id, int version) {
    MutexLock lock(mu_);
    while (!CopyLocked(parameter_id, version)) {
      waited_for_ = true;
      room_.Wait(mu_);
    }
    waited_for_ = false;
  }

  void End() {
    MutexLock lock(mu_);
    ended_ = true;
    copied_bytes_ = 0;
    tensors_.clear();
    room_.NotifyAll();
  }
  bool ended() const {
    MutexLock lock(mu_);
    return ended_;
  }
  bool waited_for() const {
    MutexLock lock(mu_);
    return waited_for_;
  }

 private:
  static bool NeedsCopy(const Tensor& tensor, int version) {
    if (tensor.is_read() || tensor.is_copied()) return false;
    // State in memory is updated in place; on a disk, each version has its own.
    const bool in_place = tensor.live.tensor > 0 && !tensor.live.memory().empty();
    if (Mutated(Mutation::kFrozenVersionOverwritten)) return in_place;
    return in_place || tensor.live.version == version;
  }
  absl::Status CopyOut(const Tensor& tensor, uint64_t offset, absl::Span<std::byte> to) {
    const tier::TensorPlace& live = tensor.live;
    const kernels::ConstRegion from = tensor.is_copied() ? tensor.copy.region() : live.memory();
    if (from.empty()) return live.home->Read(live.unit, live.version, live.tensor, offset, to);
    backend_.CopyOut(from.Sub(offset, to.size()), to);
    return absl::OkStatus();
  }

  // Returns the first tensor at or after these names.
  std::vector<Tensor>::iterator FindLocked(uint32_t parameter_id, absl::string_view role)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::partition_point(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) {
      return Precedes(tensor.parameter_id, tensor.role, parameter_id, role);
    });
  }
  // Copies what the parameter's write would destroy. Returns false if there is no room, perhaps
  // after some copies.
  bool CopyLocked(uint32_t parameter_id, int version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (NeededLocked(parameter_id, version) > copy_bytes_ - copied_bytes_) return false;
    for (auto tensor = FindLocked(parameter_id, "");
         tensor != tensors_.end() && tensor->parameter_id == parameter_id; ++tensor) {
      if (!NeedsCopy(*tensor, version)) continue;
      absl::StatusOr<tier::BackendMemory> copy =
          tier::BackendMemory::Allocate(backend_, tensor->num_bytes);
      if (!copy.ok()) {
        LOG_EVERY_T(WARNING, 1) << "a step waits until the state is read: " << copy.status();
        return false;
      }
      const absl::Status copied = tensor->live.CopyTo(backend_, copy->region());
      if (!copied.ok()) {
        LOG_EVERY_T(WARNING, 1) << "a step waits until the state is read: " << copied;
        return false;
      }
      tensor->copy = *std::move(copy);
      copied_bytes_ += tensor->num_bytes;
    }
    return true;
  }
  // Returns the bytes to copy before the parameter is written.
  uint64_t NeededLocked(uint32_t parameter_id, int version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    uint64_t needed = 0;
    for (auto tensor = FindLocked(parameter_id, "");
         tensor != tensors_.end() && tensor->parameter_id == parameter_id; ++tensor) {
      if (NeedsCopy(*tensor, version)) needed += tensor->num_bytes;
    }
    return needed;
  }

  kernels::Backend& backend_;
  const uint64_t copy_bytes_;

  mutable Mutex mu_;
  // Signaled when a tensor was read or the freeze ended.
  CondVar room_;
  std::vector<Tensor> tensors_ ABSL_GUARDED_BY(mu_);
  uint64_t copied_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool waited_for_ ABSL_GUARDED_BY(mu_) = false;
};

StateFreeze::~StateFreeze() { shared_->End(); }

absl::Status StateFreeze::Read(uint32_t parameter_id, absl::string_view role, uint64_t offset,
                               absl::Span<char> to) {
  return shared_->Read(parameter_id, role, offset, to);
}

bool StateFreeze::is_waited_for() const { return shared_->waited_for(); }

FreezeList::FreezeList() = default;

FreezeList::~FreezeList() { EndAll(); }

std::unique_ptr<StateFreeze> FreezeList::Begin(AgreementSnapshot facts, kernels::Backend& backend,
                                               uint64_t copy_bytes) {
  std::unique_ptr<StateFreeze> freeze(new StateFreeze());
  freeze->shared_ = std::make_shared<StateFreeze::Tensors>(backend, copy_bytes);
  freeze->facts_ = std::move(facts);
  const v1::ShardState& state = freeze->facts_.state;
  v1::CheckpointPart& part = freeze->part_;
  part.set_shard(freeze->facts_.shard);
  part.set_num_shards(freeze->facts_.num_shards);
  part.set_timeline(state.timeline());
  part.set_position(state.applied_position());
  return freeze;
}

std::unique_ptr<StateFreeze> FreezeList::OfNoJob(AgreementSnapshot facts,
                                                 kernels::Backend& backend) {
  std::unique_ptr<StateFreeze> freeze = Begin(std::move(facts), backend, 0);
  freeze->part_.set_job(freeze->facts_.state.applied_record().plan().job());
  return freeze;
}

absl::StatusOr<std::unique_ptr<StateFreeze>> FreezeList::Add(AgreementSnapshot facts,
                                                             const ParameterStore& store,
                                                             uint64_t copy_bytes) {
  if (!facts.state.weights_loaded()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shard is at position ", facts.state.applied_position(),
                     " and has no weights yet, there is no state to freeze"));
  }
  std::unique_ptr<StateFreeze> freeze = Begin(std::move(facts), store.backend(), copy_bytes);
  const v1::ShardState& state = freeze->facts_.state;
  KAON_ASSIGN_OR_RETURN(const std::vector<checkpoint::StateTensor> tensors,
                        checkpoint::StateTensorsOf(state.registration()));
  v1::CheckpointPart& part = freeze->part_;
  part.set_job(state.registration().definition().name());
  const StateDigests digests = store.Digests();
  part.set_weights_digest(digests.weights);
  part.set_state_digest(digests.state + store.PositionDigest(state.applied_position()));
  // Both lists are ordered by parameter id.
  auto tensor = tensors.begin();
  for (const StoredParameter& parameter : store.parameters()) {
    v1::CheckpointParameter* counters = part.add_parameters();
    counters->set_parameter_id(parameter.id);
    counters->set_updates_applied(parameter.updates_applied);
    counters->set_newton_schulz_updates(parameter.newton_schulz_updates);
    while (tensor != tensors.end() && tensor->parameter_id < parameter.id) ++tensor;
    for (; tensor != tensors.end() && tensor->parameter_id == parameter.id; ++tensor) {
      KAON_ASSIGN_OR_RETURN(const tier::TensorPlace place, PlaceOf(parameter, *tensor));
      const uint64_t size = checkpoint::StateBytes(tensor->dtype, tensor->num_elements);
      v1::CheckpointTensor& frozen = freeze->tensors_.emplace_back();
      frozen.set_parameter_id(tensor->parameter_id);
      frozen.set_role(tensor->role);
      frozen.set_dtype(tensor->dtype);
      frozen.set_momentum_form(tensor->momentum_form);
      frozen.set_num_elements(tensor->num_elements);
      freeze->shared_->Add({tensor->parameter_id, tensor->role, size, place, {}, 0});
      freeze->num_bytes_ += size;
    }
  }
  live_.push_back(freeze->shared_);
  return freeze;
}

void FreezeList::BeforeWrite(uint32_t parameter_id, int version) {
  for (const auto& tensors : live_) tensors->BeforeWrite(parameter_id, version);
  live_.erase(std::remove_if(live_.begin(), live_.end(),
                             [](const auto& tensors) { return tensors->ended(); }),
              live_.end());
}

bool FreezeList::IsRead() const {
  return std::any_of(live_.begin(), live_.end(),
                     [](const auto& tensors) { return !tensors->ended(); });
}

void FreezeList::EndAll() {
  for (const auto& tensors : live_) tensors->End();
  live_.clear();
}

}  // namespace kaon::shard
