// Reads the training text: the licence files that every Debian machine has. The split is by whole
// files. Licences copy each other, so a random split would put validation text into training. Plain
// values and pure functions; any thread.
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

struct CorpusFile {
  std::string name;
  std::string text;
};

// Files by name, each text once. A file with the text of an earlier file is left out, and so are
// links.
struct Corpus {
  std::vector<CorpusFile> training;
  std::vector<CorpusFile> validation;
};

// Reads every regular file of `directory`, also through links. The files Artistic and Apache-2.0
// are validation. NOT_FOUND if the directory cannot be read; FAILED_PRECONDITION if a side of the
// split is empty.
absl::StatusOr<Corpus> ReadCorpus(const std::string& directory);

// Splits `files`, in any order, as ReadCorpus does.
absl::StatusOr<Corpus> SplitCorpus(std::vector<CorpusFile> files);

// Maps characters (bytes) to tokens. Token 0 is padding before the start of a file. Token 1 is
// every character that the training text lacks. The others are the training characters in ascending
// order.
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

// Token texts one after another, each preceded by `context` padding tokens. Knows the positions
// that can be predicted.
class TokenText {
 public:
  TokenText(const std::vector<CorpusFile>& files, const Vocabulary& vocabulary, int context);

  // Returns the number of characters; each can be predicted.
  int64_t num_positions() const { return static_cast<int64_t>(positions_.size()); }
  // Returns predictions of the characters `positions` (0 .. num_positions() - 1), in that order.
  Batch MakeBatch(absl::Span<const int64_t> positions) const;
  // Return the character at `position`, and the `length` <= context tokens before it.
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
