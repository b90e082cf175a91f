// The versions of one parameter that readers hold on to, and copies of those whose memory was
// written again (P5: nobody who has begun to read a version finds it gone, as long as the memory
// budget has room for a copy). Owned by ParameterPublisher, under the parameter's lock.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PINNED_VERSIONS_H_
#define KAON_SERVER_SHARD_PARAMETERS_PINNED_VERSIONS_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

// One reader, of any number of parameters.
using ReaderId = uint64_t;

class PinnedVersions {
 public:
  PinnedVersions() = default;
  // Clear.
  ~PinnedVersions();
  PinnedVersions(const PinnedVersions&) = delete;
  PinnedVersions& operator=(const PinnedVersions&) = delete;

  void Add(ReaderId reader, uint64_t step);
  // Frees what nobody else holds on to. Nothing for a reader that is not there.
  void Remove(ReaderId reader);
  // Whether anybody holds on to one of these steps' version.
  bool Holds(uint64_t first_step, uint64_t last_step) const;
  // Copies what is that version, under a name that `store`, which outlives this object, does not
  // have yet. RESOURCE_EXHAUSTED naming the arithmetic: its readers lose it.
  absl::Status Keep(tier::TieredStore& store, std::string name, uint64_t first_step,
                    uint64_t last_step, absl::Span<const float> version);
  // The copy of that step's version; empty if there is none. Valid until Remove or Clear.
  absl::Span<const float> Find(uint64_t step) const;
  // Frees all copies; readers stay, for versions that are yet to come.
  void Clear();

 private:
  struct Copy {
    tier::TieredStore* store = nullptr;
    std::string name;
    tier::Pin pin;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
  };

  static void Free(Copy& copy);

  // Each with the step it reads.
  std::map<ReaderId, uint64_t> readers_;
  std::list<Copy> copies_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PINNED_VERSIONS_H_
