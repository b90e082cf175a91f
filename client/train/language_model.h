// A character-level language model: embeddings of the last characters, a residual multilayer
// perceptron with RMS normalisation, and a softmax over the next character. The backward pass is
// written by hand. The scalar type is a template argument so that tests can check the gradient in
// double.
// Owned by one worker and used by one thread at a time. Results depend only on the weights and the
// batch: products are single-threaded and every sum has a fixed order.
#ifndef KAON_CLIENT_TRAIN_LANGUAGE_MODEL_H_
#define KAON_CLIENT_TRAIN_LANGUAGE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace kaon::train {

struct ModelShape {
  int vocabulary = 0;
  // Number of characters before the predicted one that the model sees.
  int context = 16;
  int embedding = 16;
  int hidden = 256;
  // Residual blocks, each with one hidden x hidden matrix.
  int blocks = 2;
};

// One trainable tensor; its index in ModelParameters() is its parameter id.
struct ModelParameter {
  std::string name;
  std::vector<uint64_t> shape;
  bool is_embedding_or_output = false;
};

// Returns the parameters in order of use: token_embedding, input.{weight,bias},
// block<i>.{norm.gain,weight,bias}, final_norm.gain, output.{weight,bias}. Matrices are (fan_out,
// fan_in).
std::vector<ModelParameter> ModelParameters(const ModelShape& shape);

// Returns the number of elements of `parameter`.
int64_t NumElements(const ModelParameter& parameter);

// Returns weights by parameter id. Matrices are uniform with variance 1/fan_in, embeddings uniform
// in [-1, 1). Gains are 1; biases and the output head are 0. The same seed gives the same bits on
// every machine.
std::vector<std::vector<float>> InitialWeights(const ModelShape& shape, uint64_t seed);

// Predictions to make: contexts[i * context .. +context) precede targets[i], oldest character
// first.
struct Batch {
  std::vector<uint8_t> contexts;
  std::vector<uint8_t> targets;

  int size() const { return static_cast<int>(targets.size()); }
};

template <typename Scalar>
class LanguageModel {
 public:
  using Tensors = std::vector<std::vector<Scalar>>;

  explicit LanguageModel(const ModelShape& shape);

  // Returns the mean negative log-likelihood in nats per character, and its gradient in every
  // parameter. Resizes `gradients` as needed. The batch must not be empty, and its tokens must be
  // below the vocabulary size (CHECK).
  double LossAndGradients(const Tensors& weights, const Batch& batch, Tensors* gradients);

  // Returns the loss alone.
  double Loss(const Tensors& weights, const Batch& batch);

 private:
  // A matrix in row-major order with one column per prediction. Loops over columns vectorise
  // without changing the order of any sum.
  struct Activations {
    void Resize(int rows, int columns);
    Scalar* row(int i) { return values.data() + static_cast<int64_t>(i) * columns; }
    const Scalar* row(int i) const { return values.data() + static_cast<int64_t>(i) * columns; }

    std::vector<Scalar> values;
    int rows = 0;
    int columns = 0;
  };
  // Values that a block keeps for the backward pass.
  struct BlockState {
    // Input of the block divided by its root mean square, and the inverse of that root mean square.
    Activations normalized;
    Activations inverse_rms;
    Activations activated;
  };

  double Forward(const Tensors& weights, const Batch& batch);
  void Embed(const std::vector<Scalar>& embedding, const Batch& batch);
  void ForwardBlock(const Tensors& weights, int block);
  // Turns logits_ into their gradient; returns the mean loss.
  double Softmax(const Batch& batch);
  void BackwardBlock(const Tensors& weights, int block, Tensors* gradients);
  void BackwardEmbedding(const Batch& batch, std::vector<Scalar>* gradient);

  void Normalize(const Activations& in, BlockState* state);
  // Adds to d_hidden_ the gradient through the normalisation and its gain. `d_scaled` is the
  // gradient of the scaled output.
  void BackwardNormalize(const std::vector<Scalar>& gain, const BlockState& state,
                         const Activations& d_scaled, std::vector<Scalar>* gain_gradient);

  int BlockParameter(int block) const { return 3 + 3 * block; }
  int FinalGainParameter() const { return 3 + 3 * shape_.blocks; }

  const ModelShape shape_;
  Activations embedded_;
  Activations hidden_;
  std::vector<BlockState> blocks_;
  BlockState final_;
  Activations final_scaled_;
  Activations logits_;
  Activations d_hidden_;
  Activations scratch_;
};

extern template class LanguageModel<float>;
extern template class LanguageModel<double>;

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_LANGUAGE_MODEL_H_
