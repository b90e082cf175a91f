#include "client/train/language_model.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/train/matrix_product.h"
#include "client/train/random.h"

namespace kaon::train {
namespace {

// Keeps a column of zeros finite.
constexpr double kNormEpsilon = 1e-6;

// silu(x) = x * sigmoid(x).
template <typename Scalar>
Scalar Silu(Scalar x) {
  return x / (Scalar(1) + std::exp(-x));
}

template <typename Scalar>
Scalar SiluDerivative(Scalar x) {
  const Scalar sigmoid = Scalar(1) / (Scalar(1) + std::exp(-x));
  return sigmoid * (Scalar(1) + x * (Scalar(1) - sigmoid));
}

template <typename Scalar>
void AddBias(const std::vector<Scalar>& bias, int columns, Scalar* values) {
  for (size_t i = 0; i < bias.size(); ++i) {
    Scalar* row = values + i * columns;
    for (int j = 0; j < columns; ++j) row[j] += bias[i];
  }
}

// Eight interleaved partial sums have the same order for every instruction set.
template <typename Scalar>
Scalar DotProduct(const Scalar* a, const Scalar* b, int n) {
  Scalar lanes[8] = {};
  int j = 0;
  for (; j + 8 <= n; j += 8) {
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += a[j + lane] * b[j + lane];
  }
  for (; j < n; ++j) lanes[j % 8] += a[j] * b[j];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <typename Scalar>
void SumRows(const Scalar* values, int columns, std::vector<Scalar>* sums) {
  const std::vector<Scalar> ones(columns, Scalar(1));
  for (size_t i = 0; i < sums->size(); ++i) {
    (*sums)[i] = DotProduct(values + i * columns, ones.data(), columns);
  }
}

}  // namespace

std::vector<ModelParameter> ModelParameters(const ModelShape& shape) {
  const uint64_t vocabulary = shape.vocabulary;
  const uint64_t embedding = shape.embedding;
  const uint64_t hidden = shape.hidden;
  const uint64_t inputs = embedding * shape.context;
  std::vector<ModelParameter> parameters = {
      {"token_embedding", {vocabulary, embedding}, true},
      {"input.weight", {hidden, inputs}},
      {"input.bias", {hidden}},
  };
  for (int block = 0; block < shape.blocks; ++block) {
    const std::string prefix = absl::StrCat("block", block);
    parameters.push_back({prefix + ".norm.gain", {hidden}});
    parameters.push_back({prefix + ".weight", {hidden, hidden}});
    parameters.push_back({prefix + ".bias", {hidden}});
  }
  parameters.push_back({"final_norm.gain", {hidden}});
  parameters.push_back({"output.weight", {vocabulary, hidden}, true});
  parameters.push_back({"output.bias", {vocabulary}});
  return parameters;
}

int64_t NumElements(const ModelParameter& parameter) {
  int64_t elements = 1;
  for (uint64_t dimension : parameter.shape) elements *= dimension;
  return elements;
}

std::vector<std::vector<float>> InitialWeights(const ModelShape& shape, uint64_t seed) {
  std::vector<std::vector<float>> weights;
  const std::vector<ModelParameter> parameters = ModelParameters(shape);
  for (size_t id = 0; id < parameters.size(); ++id) {
    const ModelParameter& parameter = parameters[id];
    std::vector<float> values(NumElements(parameter), 0);
    const bool is_gain = parameter.name.size() > 5 &&
                         parameter.name.compare(parameter.name.size() - 5, 5, ".gain") == 0;
    if (is_gain) std::fill(values.begin(), values.end(), 1.0f);
    // The output head starts at zero, so the first loss is log(vocabulary) for every width.
    const bool is_random = parameter.shape.size() == 2 && parameter.name != "output.weight";
    if (is_random) {
      const bool is_embedding = parameter.is_embedding_or_output;
      // Uniform on [-a, a) has variance a^2 / 3.
      const double bound = is_embedding ? 1.0 : std::sqrt(3.0 / parameter.shape[1]);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(bound * (2 * UnitUniform(seed, id, i) - 1));
      }
    }
    weights.push_back(std::move(values));
  }
  return weights;
}

template <typename Scalar>
void LanguageModel<Scalar>::Activations::Resize(int new_rows, int new_columns) {
  rows = new_rows;
  columns = new_columns;
  values.resize(static_cast<size_t>(rows) * columns);
}

template <typename Scalar>
LanguageModel<Scalar>::LanguageModel(const ModelShape& shape)
    : shape_(shape), blocks_(shape.blocks) {}

template <typename Scalar>
void LanguageModel<Scalar>::Embed(const std::vector<Scalar>& embedding, const Batch& batch) {
  const int width = shape_.embedding;
  embedded_.Resize(shape_.context * width, batch.size());
  for (int position = 0; position < shape_.context; ++position) {
    for (int column = 0; column < batch.size(); ++column) {
      const int token = batch.contexts[column * shape_.context + position];
      for (int i = 0; i < width; ++i) {
        embedded_.row(position * width + i)[column] = embedding[token * width + i];
      }
    }
  }
}

template <typename Scalar>
void LanguageModel<Scalar>::Normalize(const Activations& in, BlockState* state) {
  state->normalized.Resize(in.rows, in.columns);
  state->inverse_rms.Resize(1, in.columns);
  Scalar* inverse_rms = state->inverse_rms.row(0);
  std::fill(inverse_rms, inverse_rms + in.columns, Scalar(0));
  for (int i = 0; i < in.rows; ++i) {
    const Scalar* x = in.row(i);
    for (int j = 0; j < in.columns; ++j) inverse_rms[j] += x[j] * x[j];
  }
  for (int j = 0; j < in.columns; ++j) {
    inverse_rms[j] = Scalar(1) / std::sqrt(inverse_rms[j] / in.rows + Scalar(kNormEpsilon));
  }
  for (int i = 0; i < in.rows; ++i) {
    const Scalar* x = in.row(i);
    Scalar* out = state->normalized.row(i);
    for (int j = 0; j < in.columns; ++j) out[j] = x[j] * inverse_rms[j];
  }
}

template <typename Scalar>
void LanguageModel<Scalar>::ForwardBlock(const Tensors& weights, int block) {
  const int first = BlockParameter(block);
  BlockState& state = blocks_[block];
  Normalize(hidden_, &state);
  state.activated.Resize(hidden_.rows, hidden_.columns);
  for (int i = 0; i < hidden_.rows; ++i) {
    const Scalar gain = weights[first][i];
    const Scalar* x = state.normalized.row(i);
    Scalar* out = state.activated.row(i);
    for (int j = 0; j < hidden_.columns; ++j) out[j] = Silu(gain * x[j]);
  }
  MultiplyMatrices<Scalar>(
      {.rows = hidden_.rows, .cols = hidden_.columns, .inner = hidden_.rows, .accumulate = true},
      weights[first + 1].data(), state.activated.values.data(), hidden_.values.data());
  AddBias(weights[first + 2], hidden_.columns, hidden_.values.data());
}

template <typename Scalar>
double LanguageModel<Scalar>::Forward(const Tensors& weights, const Batch& batch) {
  const int columns = batch.size();
  CHECK_GT(columns, 0);
  CHECK_EQ(batch.contexts.size(), static_cast<size_t>(columns) * shape_.context);
  Embed(weights[0], batch);
  hidden_.Resize(shape_.hidden, columns);
  MultiplyMatrices<Scalar>({.rows = shape_.hidden, .cols = columns, .inner = embedded_.rows},
                           weights[1].data(), embedded_.values.data(), hidden_.values.data());
  AddBias(weights[2], columns, hidden_.values.data());
  for (int block = 0; block < shape_.blocks; ++block) ForwardBlock(weights, block);
  Normalize(hidden_, &final_);
  final_scaled_.Resize(shape_.hidden, columns);
  const int first = FinalGainParameter();
  for (int i = 0; i < shape_.hidden; ++i) {
    const Scalar* x = final_.normalized.row(i);
    Scalar* out = final_scaled_.row(i);
    for (int j = 0; j < columns; ++j) out[j] = weights[first][i] * x[j];
  }
  logits_.Resize(shape_.vocabulary, columns);
  MultiplyMatrices<Scalar>({.rows = shape_.vocabulary, .cols = columns, .inner = shape_.hidden},
                           weights[first + 1].data(), final_scaled_.values.data(),
                           logits_.values.data());
  AddBias(weights[first + 2], columns, logits_.values.data());
  return Softmax(batch);
}

template <typename Scalar>
double LanguageModel<Scalar>::Softmax(const Batch& batch) {
  const int columns = batch.size();
  std::vector<Scalar> top(logits_.row(0), logits_.row(0) + columns);
  for (int i = 1; i < logits_.rows; ++i) {
    const Scalar* x = logits_.row(i);
    for (int j = 0; j < columns; ++j) top[j] = std::max(top[j], x[j]);
  }
  double loss = 0;
  for (int j = 0; j < columns; ++j) loss += top[j] - logits_.row(batch.targets[j])[j];
  std::vector<Scalar> total(columns, Scalar(0));
  for (int i = 0; i < logits_.rows; ++i) {
    Scalar* x = logits_.row(i);
    for (int j = 0; j < columns; ++j) {
      x[j] = std::exp(x[j] - top[j]);
      total[j] += x[j];
    }
  }
  for (int j = 0; j < columns; ++j) {
    loss += std::log(static_cast<double>(total[j]));
    total[j] = Scalar(1) / (total[j] * columns);
  }
  for (int i = 0; i < logits_.rows; ++i) {
    Scalar* x = logits_.row(i);
    for (int j = 0; j < columns; ++j) x[j] *= total[j];
  }
  for (int j = 0; j < columns; ++j) logits_.row(batch.targets[j])[j] -= Scalar(1) / columns;
  return loss / columns;
}

template <typename Scalar>
void LanguageModel<Scalar>::BackwardNormalize(const std::vector<Scalar>& gain,
                                              const BlockState& state, const Activations& d_scaled,
                                              std::vector<Scalar>* gain_gradient) {
  const int columns = d_scaled.columns;
  // y = x / rms(x): dx = (dy - y * mean(dy * y)) / rms(x).
  std::vector<Scalar> mean(columns, Scalar(0));
  for (int i = 0; i < d_scaled.rows; ++i) {
    const Scalar* d = d_scaled.row(i);
    const Scalar* y = state.normalized.row(i);
    (*gain_gradient)[i] = DotProduct(d, y, columns);
    for (int j = 0; j < columns; ++j) mean[j] += gain[i] * d[j] * y[j];
  }
  for (int j = 0; j < columns; ++j) mean[j] /= d_scaled.rows;
  const Scalar* inverse_rms = state.inverse_rms.row(0);
  for (int i = 0; i < d_scaled.rows; ++i) {
    const Scalar* d = d_scaled.row(i);
    const Scalar* y = state.normalized.row(i);
    Scalar* out = d_hidden_.row(i);
    for (int j = 0; j < columns; ++j) {
      out[j] += (gain[i] * d[j] - y[j] * mean[j]) * inverse_rms[j];
    }
  }
}

template <typename Scalar>
void LanguageModel<Scalar>::BackwardBlock(const Tensors& weights, int block, Tensors* gradients) {
  const int first = BlockParameter(block);
  const int hidden = shape_.hidden;
  const int columns = d_hidden_.columns;
  const BlockState& state = blocks_[block];
  SumRows(d_hidden_.values.data(), columns, &(*gradients)[first + 2]);
  MultiplyMatrices<Scalar>({.rows = hidden, .cols = hidden, .inner = columns, .transpose_b = true},
                           d_hidden_.values.data(), state.activated.values.data(),
                           (*gradients)[first + 1].data());
  scratch_.Resize(hidden, columns);
  MultiplyMatrices<Scalar>({.rows = hidden, .cols = columns, .inner = hidden, .transpose_a = true},
                           weights[first + 1].data(), d_hidden_.values.data(),
                           scratch_.values.data());
  for (int i = 0; i < hidden; ++i) {
    const Scalar gain = weights[first][i];
    const Scalar* y = state.normalized.row(i);
    Scalar* d = scratch_.row(i);
    for (int j = 0; j < columns; ++j) d[j] *= SiluDerivative(gain * y[j]);
  }
  BackwardNormalize(weights[first], state, scratch_, &(*gradients)[first]);
}

template <typename Scalar>
void LanguageModel<Scalar>::BackwardEmbedding(const Batch& batch, std::vector<Scalar>* gradient) {
  std::fill(gradient->begin(), gradient->end(), Scalar(0));
  const int width = shape_.embedding;
  for (int position = 0; position < shape_.context; ++position) {
    for (int i = 0; i < width; ++i) {
      const Scalar* d = scratch_.row(position * width + i);
      for (int column = 0; column < batch.size(); ++column) {
        const int token = batch.contexts[column * shape_.context + position];
        (*gradient)[token * width + i] += d[column];
      }
    }
  }
}

template <typename Scalar>
double LanguageModel<Scalar>::Loss(const Tensors& weights, const Batch& batch) {
  return Forward(weights, batch);
}

template <typename Scalar>
double LanguageModel<Scalar>::LossAndGradients(const Tensors& weights, const Batch& batch,
                                               Tensors* gradients) {
  CHECK_EQ(weights.size(), static_cast<size_t>(FinalGainParameter() + 3));
  gradients->resize(weights.size());
  for (size_t id = 0; id < weights.size(); ++id) (*gradients)[id].resize(weights[id].size());
  const double loss = Forward(weights, batch);
  const int columns = batch.size();
  const int hidden = shape_.hidden;
  const int first = FinalGainParameter();
  SumRows(logits_.values.data(), columns, &(*gradients)[first + 2]);
  MultiplyMatrices<Scalar>(
      {.rows = shape_.vocabulary, .cols = hidden, .inner = columns, .transpose_b = true},
      logits_.values.data(), final_scaled_.values.data(), (*gradients)[first + 1].data());
  scratch_.Resize(hidden, columns);
  MultiplyMatrices<Scalar>(
      {.rows = hidden, .cols = columns, .inner = shape_.vocabulary, .transpose_a = true},
      weights[first + 1].data(), logits_.values.data(), scratch_.values.data());
  d_hidden_.Resize(hidden, columns);
  std::fill(d_hidden_.values.begin(), d_hidden_.values.end(), Scalar(0));
  BackwardNormalize(weights[first], final_, scratch_, &(*gradients)[first]);
  for (int block = shape_.blocks - 1; block >= 0; --block) BackwardBlock(weights, block, gradients);
  SumRows(d_hidden_.values.data(), columns, &(*gradients)[2]);
  MultiplyMatrices<Scalar>(
      {.rows = hidden, .cols = embedded_.rows, .inner = columns, .transpose_b = true},
      d_hidden_.values.data(), embedded_.values.data(), (*gradients)[1].data());
  scratch_.Resize(embedded_.rows, columns);
  MultiplyMatrices<Scalar>(
      {.rows = embedded_.rows, .cols = columns, .inner = hidden, .transpose_a = true},
      weights[1].data(), d_hidden_.values.data(), scratch_.values.data());
  BackwardEmbedding(batch, &(*gradients)[0]);
  return loss;
}

template class LanguageModel<float>;
template class LanguageModel<double>;

}  // namespace kaon::train
