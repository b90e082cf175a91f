#include "client/train/ngram.h"

#include <glog/logging.h>

#include <cmath>

namespace kaon::train {
namespace {

// The top byte holds the length. One byte is free for the predicted token, the other six hold
// context tokens.
uint64_t ContextKey(absl::Span<const uint8_t> context) {
  uint64_t key = context.size();
  key <<= 8;
  for (int i = 0; i < NgramModel::kMaxOrder - 1; ++i) {
    key = key << 8 | (i < context.size() ? context[i] : 0);
  }
  return key;
}

uint64_t PairKey(uint64_t context_key, uint8_t token) {
  return context_key | static_cast<uint64_t>(token) << (8 * (NgramModel::kMaxOrder - 1));
}

}  // namespace

NgramModel::NgramModel(const TokenText& text, int order, int vocabulary)
    : order_(order), vocabulary_(vocabulary) {
  CHECK(order >= 1 && order <= kMaxOrder) << order;
  for (int64_t position = 0; position < text.num_positions(); ++position) {
    const uint8_t token = text.Target(position);
    for (int length = 0; length < order; ++length) {
      const uint64_t key = ContextKey(text.ContextOf(position, length));
      Followers& followers = contexts_[key];
      ++followers.total;
      if (++pairs_[PairKey(key, token)] == 1) ++followers.types;
    }
  }
}

double NgramModel::Probability(absl::Span<const uint8_t> context, uint8_t token) const {
  CHECK_EQ(context.size(), static_cast<size_t>(order_ - 1));
  double probability = 1.0 / vocabulary_;
  for (int length = 0; length < order_; ++length) {
    const uint64_t key = ContextKey(context.subspan(context.size() - length));
    const auto followers = contexts_.find(key);
    // If a context is unseen, its extensions are too.
    if (followers == contexts_.end()) break;
    const auto pair = pairs_.find(PairKey(key, token));
    const int64_t count = pair == pairs_.end() ? 0 : pair->second;
    probability = (count + followers->second.types * probability) /
                  (followers->second.total + followers->second.types);
  }
  return probability;
}

double NgramModel::Loss(const TokenText& text) const {
  double loss = 0;
  for (int64_t position = 0; position < text.num_positions(); ++position) {
    loss -= std::log(Probability(text.ContextOf(position, order_ - 1), text.Target(position)));
  }
  return loss / text.num_positions();
}

}  // namespace kaon::train
