// Character n-gram model with Witten-Bell interpolation: the baseline that a trained model is
// compared with.
//   P(c | h) = (count(h c) + T(h) P(c | h')) / (count(h) + T(h))
// with T(h) the number of different characters seen after h, h' = h without its oldest character;
// below the unigram lies the uniform distribution over the vocabulary. Immutable once built; any
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

  // Counts all of `text`. `order` characters, the predicted one included: 1 .. kMaxOrder, and order
  // - 1 no more than the context `text` was made with (CHECK).
  NgramModel(const TokenText& text, int order, int vocabulary);

  // P(token | context); `context` has order - 1 tokens, oldest first.
  double Probability(absl::Span<const uint8_t> context, uint8_t token) const;

  // Mean negative log-likelihood in nats per character of all of `text`.
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
