#include "tests/kernels/reference/float64_muon.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

namespace kaon::reference {
namespace {

int64_t Product(const std::vector<int64_t>& extents, size_t first, size_t end) {
  int64_t product = 1;
  for (size_t i = first; i < end; ++i) product *= extents[i];
  return product;
}

// The one of consecutive pieces of `sizes` that has element `i`, and the element's place in it.
struct Piece {
  int64_t index = 0;
  int64_t within = 0;
};

Piece PieceOf(const std::vector<int64_t>& sizes, int64_t i) {
  Piece piece{0, i};
  while (piece.within >= sizes.at(piece.index)) piece.within -= sizes[piece.index++];
  return piece;
}

BlockPlace PlaceOf(const Layout& layout, int64_t element) {
  const std::vector<int64_t>& shape = layout.shape;
  const int64_t col = element % shape.back();
  const int64_t row = element / shape.back();
  if (layout.kind == "matrix") return {0, row, col};
  if (layout.kind == "batched") {
    const int64_t rows = shape[shape.size() - 2];
    const std::vector<int64_t> sizes =
        layout.sizes.empty() ? std::vector<int64_t>{rows} : layout.sizes;
    const Piece piece = PieceOf(sizes, row % rows);
    const int64_t count = static_cast<int64_t>(sizes.size());
    return {row / rows * count + piece.index, piece.within, col};
  }
  if (layout.kind == "conv_flatten") {
    const int64_t fan_in = Product(shape, 1, shape.size());
    return {0, element / fan_in, element % fan_in};
  }
  if (layout.kind == "split_rows") {
    const Piece piece = PieceOf(layout.sizes, row);
    return {piece.index, piece.within, col};
  }
  if (layout.kind == "split_cols") {
    const Piece piece = PieceOf(layout.sizes, col);
    return {piece.index, row, piece.within};
  }
  if (layout.kind == "heads") {
    const int64_t head_rows = shape[0] / layout.num_heads;
    return {row / head_rows, row % head_rows, col};
  }
  if (layout.kind == "qkv_interleaved") {
    int64_t group_rows = 0;
    for (const int64_t size : layout.sizes) group_rows += size;
    const Piece piece = PieceOf(layout.sizes, row % group_rows);
    return {piece.index, row / group_rows * layout.sizes[piece.index] + piece.within, col};
  }
  LOG(FATAL) << "layout " << layout.kind;
}

}  // namespace

std::vector<BlockPlace> PlacesOf(const Layout& layout) {
  std::vector<BlockPlace> places(Product(layout.shape, 0, layout.shape.size()));
  for (size_t i = 0; i < places.size(); ++i) places[i] = PlaceOf(layout, i);
  return places;
}

std::vector<Matrix> Cut(const Layout& layout, const std::vector<double>& elements) {
  const std::vector<BlockPlace> places = PlacesOf(layout);
  std::vector<std::pair<int64_t, int64_t>> extents;
  for (const BlockPlace& place : places) {
    extents.resize(std::max<size_t>(extents.size(), place.block + 1));
    auto& [rows, cols] = extents[place.block];
    rows = std::max(rows, place.row + 1);
    cols = std::max(cols, place.col + 1);
  }
  std::vector<Matrix> blocks;
  for (const auto& [rows, cols] : extents) blocks.push_back(Matrix::Zero(rows, cols));
  for (size_t i = 0; i < places.size(); ++i) {
    blocks[places[i].block](places[i].row, places[i].col) = elements.at(i);
  }
  return blocks;
}

double ScaleNamed(const std::string& name, double fan_out, double fan_in) {
  if (name == "none") return 1;
  if (name == "original") return fan_out > fan_in ? std::sqrt(fan_out / fan_in) : 1;
  if (name == "max_dim") return std::sqrt(fan_out > fan_in ? fan_out : fan_in);
  if (name == "match_rms_adamw") return 0.2 * std::sqrt(fan_out > fan_in ? fan_out : fan_in);
  if (name == "unit_rms_norm") return std::sqrt(fan_out / fan_in);
  LOG(FATAL) << "scale " << name;
}

void LayoutMuon::Step(const std::vector<double>& grad, std::vector<double>& param) {
  buffer.resize(param.size(), 0.0);
  std::vector<double> direction(param.size());
  const double share = sums ? 1 : 1 - momentum;
  for (size_t i = 0; i < param.size(); ++i) {
    const double g = decay == "l2" ? grad.at(i) + weight_decay * param[i] : grad.at(i);
    buffer[i] = momentum * buffer[i] + share * g;
    direction[i] = nesterov ? momentum * buffer[i] + share * g : buffer[i];
  }
  std::vector<Matrix> updates = Cut(layout, direction);
  for (Matrix& update : updates) {
    const double fan_out = static_cast<double>(transposed ? update.cols() : update.rows());
    const double fan_in = static_cast<double>(transposed ? update.rows() : update.cols());
    update =
        scale_extra * ScaleNamed(scale, fan_out, fan_in) * Orthogonalized(newton_schulz, update);
  }
  double kept = 1;
  if (decay == "decoupled") {
    kept = 1 - lr * weight_decay;
  } else if (decay == "independent") {
    kept = 1 - weight_decay;
  } else if (decay == "palm") {
    kept = 1 - weight_decay * lr * lr;
  } else if (decay != "l2") {
    LOG(FATAL) << "decay " << decay;
  }
  const std::vector<BlockPlace> places = PlacesOf(layout);
  for (size_t i = 0; i < param.size(); ++i) {
    const BlockPlace& place = places[i];
    param[i] = param[i] * kept - lr * updates[place.block](place.row, place.col);
  }
}

}  // namespace kaon::reference
