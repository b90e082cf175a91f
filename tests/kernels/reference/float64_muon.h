// Textbook float64 Muon with every layout, scale, momentum form and decay mode ([L], [M], [S1],
// [W1]). Shares no code with kernels/. Kinds and modes are the names of docs/design/numerics.md, so
// that no enumeration is shared either; an unknown name is fatal. Pure functions and values; any
// thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_MUON_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_MUON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/reference/float64_newton_schulz.h"

namespace kaon::reference {

struct Layout {
  // One of: matrix, batched, conv_flatten, split_rows, qkv_interleaved, heads, split_cols.
  std::string kind = "matrix";
  std::vector<int64_t> shape;
  std::vector<int64_t> sizes;
  int64_t num_heads = 0;
};

// The matrix of an element, and the element's place in it.
struct BlockPlace {
  int64_t block = 0;
  int64_t row = 0;
  int64_t col = 0;

  bool operator==(const BlockPlace&) const = default;
};

// Returns the place of each element of the parameter, in memory order, by the layouts of [L1]-[L6]
// read backwards.
std::vector<BlockPlace> PlacesOf(const Layout& layout);

// Returns the parameter's matrices.
std::vector<Matrix> Cut(const Layout& layout, const std::vector<double>& elements);

// Returns the scale ([S1]) of that name: none, original, max_dim, match_rms_adamw or unit_rms_norm.
double ScaleNamed(const std::string& name, double fan_out, double fan_in);

// Muon on one parameter, from its gradient to its new weights ([M1]-[M5]).
struct LayoutMuon {
  double lr = 0;
  double momentum = 0.95;
  bool nesterov = true;
  // The momentum has the form `sum` instead of `ema` ([M2]).
  bool sums = false;
  double weight_decay = 0;
  // One of: decoupled, independent, l2, palm.
  std::string decay = "decoupled";
  std::string scale = "match_rms_adamw";
  double scale_extra = 1;
  bool transposed = false;
  NewtonSchulzCase newton_schulz = {TriplesOfSet("jordan", 5)};
  Layout layout;
  std::vector<double> buffer;

  void Step(const std::vector<double>& grad, std::vector<double>& param);
};

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_MUON_H_
