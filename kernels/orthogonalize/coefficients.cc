#include "kernels/orthogonalize/coefficients.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>

namespace kaon::kernels {
namespace {

constexpr NewtonSchulzTriple kJordan[] = {{3.4445f, -4.7750f, 2.0315f}};

constexpr NewtonSchulzTriple kPolarExpress[] = {
    {8.2051f, -22.9019f, 16.4607f}, {4.0664f, -2.8612f, 0.5184f}, {3.9096f, -2.8234f, 0.5250f},
    {3.2856f, -2.4153f, 0.4853f},   {2.2779f, -1.6198f, 0.3985f}, {1.8726f, -1.2307f, 0.3585f},
    {1.8564f, -1.2132f, 0.3568f},   {1.8750f, -1.2500f, 0.3750f}};

const NewtonSchulzCoefficientSet kSets[] = {
    {NsCoefficients::kJordan, "jordan", kJordan},
    {NsCoefficients::kPolarExpress, "polar_express", kPolarExpress},
};

}  // namespace

absl::Span<const NewtonSchulzCoefficientSet> NewtonSchulzCoefficientSets() { return kSets; }

NewtonSchulzTriple NewtonSchulzCoefficients(NsCoefficients set, int step) {
  for (const NewtonSchulzCoefficientSet& row : kSets) {
    if (row.id == set) return row.triples[std::min<size_t>(step, row.triples.size() - 1)];
  }
  LOG(FATAL) << "coefficient set " << static_cast<int>(set) << " has no row in the table";
}

}  // namespace kaon::kernels
