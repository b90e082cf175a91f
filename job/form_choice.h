// Which form of Newton-Schulz ([N1], [N7]) steps matrices faster, by what shards measured when they
// started, and the choice for groups that leave it to that (ADR 0024). Pure functions; any thread.
#ifndef KAON_JOB_FORM_CHOICE_H_
#define KAON_JOB_FORM_CHOICE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::job {

// Of all shards, one after the other.
using FormTimes = std::vector<v1::NewtonSchulzFormTime>;

// Gram form is called the faster one from here on: by less, two measurements of one form differ.
inline constexpr double kLeastGramGain = 1.05;

// What Gram form gains in one dtype. Built once, asked for each matrix.
class GramGains {
 public:
  GramGains(const FormTimes& times, v1::NewtonSchulzDType dtype);

  // Nothing was measured in that dtype.
  bool empty() const { return gains_.empty(); }

  // Time in standard form by time in Gram form, shards' times added up, of the measured shape whose
  // sides are the most alike to those of such a matrix. Shapes that are still wider gain more: the
  // widest one counts for them. Absent for a square, and where nothing was measured.
  absl::optional<double> Of(uint64_t rows, uint64_t cols) const;

 private:
  struct Gain {
    double log_aspect = 0;
    double gain = 0;
  };
  // One for each shape.
  std::vector<Gain> gains_;
};

// The restarts of a group whose form is chosen: of 5 steps those whose error is the least where
// singular values span decades (ADR 0024), else the default ones.
std::vector<uint32_t> ChosenRestarts(uint32_t ns_steps);

// Gives each of these groups of the job, which is valid, the form that is faster for all of its
// matrices together. FAILED_PRECONDITION naming the group if it has a matrix that is no square and
// nothing was measured in its ns_dtype.
absl::Status ChooseForms(const FormTimes& times, absl::Span<const int> groups,
                         v1::RegisterBody& registration);

}  // namespace kaon::job

#endif  // KAON_JOB_FORM_CHOICE_H_
