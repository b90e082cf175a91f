// Versions of one parameter that readers pinned, and copies of those whose buffer was overwritten.
// A pinned version stays readable while the memory budget has room for a copy (P5). Owned by
// ParameterPublisher, under the parameter's lock.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PINNED_VERSIONS_H_
#define KAON_SERVER_SHARD_PARAMETERS_PINNED_VERSIONS_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/region.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

// Identifies a reader of any number of parameters.
using ReaderId = uint64_t;

// The weights of steps first_step to last_step.
struct StepWeights {
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  kernels::ConstRegion memory;
};

class PinnedVersions {
 public:
  PinnedVersions() = default;
  // Calls Clear.
  ~PinnedVersions();
  PinnedVersions(const PinnedVersions&) = delete;
  PinnedVersions& operator=(const PinnedVersions&) = delete;

  void Add(ReaderId reader, uint64_t step);
  // Removes the reader and frees copies that no other reader pins. Ignores an unknown reader.
  void Remove(ReaderId reader);
  // Returns true if a reader pins the version of one of these steps.
  bool Holds(uint64_t first_step, uint64_t last_step) const;
  // A copy of the version of some steps. It has memory of a store.
  struct Copy {
    tier::TieredStore* store = nullptr;
    std::string name;
    tier::Pin pin;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
  };
  // Makes a copy, which `fill` writes, in `store`, under a name that is new to it. Returns
  // RESOURCE_EXHAUSTED naming the arithmetic, or the error of `fill`. `store` outlives this object.
  // Needs no lock.
  static absl::StatusOr<Copy> MakeCopy(uint64_t first_step, uint64_t last_step,
                                       uint64_t num_elements, tier::TieredStore& store,
                                       std::string name,
                                       absl::FunctionRef<absl::Status(kernels::Region to)> fill);
  // Keeps a copy of MakeCopy while a reader pins its version.
  void Keep(Copy copy);
  // Returns the copy for `step`; empty memory if there is none. Valid until Remove or Clear.
  StepWeights Find(uint64_t step) const;
  // Frees all copies. Readers stay, for versions still to come.
  void Clear();

 private:
  static void Free(Copy& copy);

  // Maps each reader to the step that it reads.
  std::map<ReaderId, uint64_t> readers_;
  std::list<Copy> copies_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PINNED_VERSIONS_H_
