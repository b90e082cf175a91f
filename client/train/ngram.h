// Character n-gram model with Witten-Bell interpolation: the baseline for a trained model.
//   P(c | h) = (count(h c) + T(h) P(c | h')) / (count(h) + T(h))
// T(h) is the number of different characters seen after h; h' is h without its oldest character.
// Below the unigram is the uniform distribution over the vocabulary. Immutable once built; any
// thread.
#ifndef KAON_CLIENT_TRAIN_NGRAM_H_
#define KAON_CLIENT_TRAIN_NGRAM_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "client/train/corpus.h"

namespace kaon::train {

class NgramModel {
 public:
  static constexpr int kMaxOrder = 7;

  // Counts all of `text`. `order` is the number of characters including the predicted one: 1 ..
  // kMaxOrder. `order` must be at most 1 above the context that `text` was made with (CHECK).
  NgramModel(const TokenText& text, int order, int vocabulary);

  // Returns P(token | context); `context` has order - 1 tokens, oldest first.
  double Probability(absl::Span<const uint8_t> context, uint8_t token) const;

  // Returns the mean negative log-likelihood in nats per character of all of `text`.
  double Loss(const TokenText& text) const;

 private:
  struct Followers {
    int64_t total = 0;
    int64_t types = 0;
  };

  const int order_;
  const int vocabulary_;
  absl::flat_hash_map<uint64_t, Followers> contexts_;
  absl::flat_hash_map<uint64_t, int64_t> pairs_;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_NGRAM_H_
