// The training text: the licence files every Debian machine has, split by whole files. The licences
// copy each other, so a random split would let validation text be seen in training. Plain values
// and pure functions; any thread.
#ifndef KAON_CLIENT_TRAIN_CORPUS_H_
#define KAON_CLIENT_TRAIN_CORPUS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/train/language_model.h"

namespace kaon::train {

inline constexpr char kDefaultCorpusDirectory[] = "/usr/share/common-licenses";

// One file of text.
struct CorpusFile {
  std::string name;
  std::string text;
};

// Files by name, each text once: a file whose text is that of a file before it is left out, which
// also leaves out links.
struct Corpus {
  std::vector<CorpusFile> training;
  std::vector<CorpusFile> validation;
};

// Reads every regular file of `directory` (links followed). Validation: files called Artistic and
// Apache-2.0. NOT_FOUND when the directory cannot be read, FAILED_PRECONDITION when a side of the
// split is empty.
absl::StatusOr<Corpus> ReadCorpus(const std::string& directory);

// Splits `files`, in any order, as ReadCorpus does.
absl::StatusOr<Corpus> SplitCorpus(std::vector<CorpusFile> files);

// Characters (bytes) to tokens. Token 0 is padding before the start of a file, token 1 every
// character that the training text does not have; the others are the training characters in
// ascending order.
class Vocabulary {
 public:
  static constexpr uint8_t kPadding = 0;
  static constexpr uint8_t kUnknown = 1;

  explicit Vocabulary(const std::vector<CorpusFile>& training);

  int size() const { return size_; }
  uint8_t TokenOf(char character) const { return tokens_[static_cast<uint8_t>(character)]; }

 private:
  std::array<uint8_t, 256> tokens_;
  int size_ = 2;
};

// Token texts laid end to end, each preceded by `context` padding tokens, with the places that can
// be predicted.
class TokenText {
 public:
  TokenText(const std::vector<CorpusFile>& files, const Vocabulary& vocabulary, int context);

  // Number of characters, each of which can be predicted.
  int64_t num_positions() const { return static_cast<int64_t>(positions_.size()); }
  // Predictions of the characters `positions` (0 .. num_positions() - 1), in that order.
  Batch MakeBatch(absl::Span<const int64_t> positions) const;
  // The character at `position`, and the `length` <= context tokens before it.
  uint8_t Target(int64_t position) const { return tokens_[positions_[position]]; }
  absl::Span<const uint8_t> ContextOf(int64_t position, int length) const {
    return absl::MakeConstSpan(tokens_).subspan(positions_[position] - length, length);
  }

 private:
  const int context_;
  std::vector<uint8_t> tokens_;
  // Index into tokens_ of each character.
  std::vector<int64_t> positions_;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_CORPUS_H_
