#include "client/train/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kaon::train {
namespace {

constexpr absl::string_view kValidationFiles[] = {"Apache-2.0", "Artistic"};

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return absl::NotFoundError(absl::StrCat("corpus file ", path.string(), " cannot be read"));
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace

absl::StatusOr<Corpus> SplitCorpus(std::vector<CorpusFile> files) {
  std::sort(files.begin(), files.end(),
            [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
  const auto is_validation = [](const CorpusFile& file) {
    return std::find(std::begin(kValidationFiles), std::end(kValidationFiles), file.name) !=
           std::end(kValidationFiles);
  };
  // Validation texts come first: a copy of one under another name must not be used for training.
  std::stable_partition(files.begin(), files.end(), is_validation);
  Corpus corpus;
  std::set<std::string> texts;
  for (CorpusFile& file : files) {
    if (file.text.empty() || !texts.insert(file.text).second) continue;
    (is_validation(file) ? corpus.validation : corpus.training).push_back(std::move(file));
  }
  if (corpus.validation.empty()) {
    return absl::FailedPreconditionError("corpus has no validation file: Apache-2.0 or Artistic");
  }
  if (corpus.training.empty()) {
    return absl::FailedPreconditionError(
        "corpus has no training file: none besides Apache-2.0 and Artistic");
  }
  return corpus;
}

absl::StatusOr<Corpus> ReadCorpus(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("corpus directory ", directory, " cannot be read: ", error.message()));
  }
  std::vector<CorpusFile> files;
  for (const std::filesystem::directory_entry& entry : entries) {
    if (!entry.is_regular_file(error)) continue;
    absl::StatusOr<std::string> text = ReadFile(entry.path());
    if (!text.ok()) return text.status();
    files.push_back({entry.path().filename().string(), *std::move(text)});
  }
  return SplitCorpus(std::move(files));
}

Vocabulary::Vocabulary(const std::vector<CorpusFile>& training) {
  std::array<bool, 256> used = {};
  for (const CorpusFile& file : training) {
    for (char character : file.text) used[static_cast<uint8_t>(character)] = true;
  }
  tokens_.fill(kUnknown);
  // Tokens are bytes: if a text uses nearly all 256 characters, the last ones stay unknown.
  for (int character = 0; character < 256 && size_ < 256; ++character) {
    if (used[character]) tokens_[character] = static_cast<uint8_t>(size_++);
  }
}

TokenText::TokenText(const std::vector<CorpusFile>& files, const Vocabulary& vocabulary,
                     int context)
    : context_(context) {
  for (const CorpusFile& file : files) {
    tokens_.insert(tokens_.end(), context, Vocabulary::kPadding);
    for (char character : file.text) {
      positions_.push_back(static_cast<int64_t>(tokens_.size()));
      tokens_.push_back(vocabulary.TokenOf(character));
    }
  }
}

Batch TokenText::MakeBatch(absl::Span<const int64_t> positions) const {
  Batch batch;
  batch.contexts.reserve(positions.size() * context_);
  batch.targets.reserve(positions.size());
  for (int64_t position : positions) {
    const auto target = tokens_.begin() + positions_[position];
    batch.contexts.insert(batch.contexts.end(), target - context_, target);
    batch.targets.push_back(*target);
  }
  return batch;
}

}  // namespace kaon::train
