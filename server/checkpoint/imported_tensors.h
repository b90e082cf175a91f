// Reads tensors of a safetensors file that another program wrote, and finds the optimizer state in
// it. Works on files alone. Not thread-safe. The import owns the objects.
#ifndef KAON_SERVER_CHECKPOINT_IMPORTED_TENSORS_H_
#define KAON_SERVER_CHECKPOINT_IMPORTED_TENSORS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kaon/v1/parameters.pb.h"
#include "server/checkpoint/safetensors/safetensors_reader.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

// Role of the number of updates of a parameter, an I64 scalar. Exports write it, too.
inline constexpr char kUpdatesRole[] = "updates_applied";
// Metadata of the form of Muon's buffers, and its values. Exports write it, too.
inline constexpr char kMomentumFormKey[] = "momentum_form";
inline constexpr char kEma[] = "ema";
inline constexpr char kSum[] = "sum";

// Returns "role:parameter", the name of a parameter's state in a file.
std::string StateName(absl::string_view role, const v1::ParameterSpec& parameter);

// Returns how `tensor` does not fit the parameter: it must be F32, F16 or BF16, of the same shape.
// Empty if it fits.
std::string Mismatch(const v1::ParameterSpec& parameter, const Tensor& tensor);

// Reads elements from `first` on as floats. `tensor` must be F32, F16 or BF16. Codes of
// SafetensorsReader::Read.
absl::Status ReadFloats(const SafetensorsReader& reader, const Tensor& tensor, uint64_t first,
                        absl::Span<float> to);

class ImportedState {
 public:
  // All three must outlive the object. `states` are those of StateTensorsOf. The file's metadata
  // `momentum_form`, ema or sum, is the form of Muon's buffers; without it they are in the job's.
  ImportedState(const v1::RegisterBody& registration, const std::vector<StateTensor>& states,
                const SafetensorsReader& reader);

  // Adds the names of all tensors that may be state to `known`, and of each bad one what is wrong
  // to `problems`. A parameter has all of its state and its number of updates, or nothing of it.
  void Check(std::set<std::string>& known, std::vector<std::string>& problems);

  // Reads the numbers of updates; call it once, after a Check without problems. INVALID_ARGUMENT
  // names a number that is negative or more than 2^62.
  absl::Status ReadUpdates();
  // Returns 0 if the file has no state of the parameter.
  uint64_t updates_applied(uint32_t parameter_id) const { return updates_[parameter_id]; }
  // Returns the largest of all.
  uint64_t most_updates() const;

  // Returns `num_elements` elements from `first` on as a checkpoint stores them, or zeros if the
  // file has no state of the parameter. `first` is a multiple of 32. INVALID_ARGUMENT names an
  // element that is not finite, or a negative one of a second moment.
  absl::StatusOr<std::string> Read(const StateTensor& state, uint64_t first,
                                   uint64_t num_elements) const;

 private:
  const v1::ParameterSpec& ParameterOf(uint32_t id) const {
    return job_.parameters(static_cast<int>(id));
  }
  // Returns null if the file has none.
  const Tensor* Find(absl::string_view role, uint32_t parameter_id) const;
  // Returns what to multiply the file's elements by.
  double FactorOf(const StateTensor& state) const;

  const v1::Placement& placement_;
  const v1::JobDefinition& job_;
  const std::vector<StateTensor>& states_;
  const SafetensorsReader& reader_;
  // "", "ema", "sum", or what Check refuses.
  std::string momentum_form_;
  // Numbers of updates by parameter id.
  std::vector<uint64_t> updates_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_IMPORTED_TENSORS_H_
