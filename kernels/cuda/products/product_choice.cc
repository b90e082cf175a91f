#include "kernels/cuda/products/product_choice.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/products/symmetric_schedule.h"

namespace kaon::kernels::cuda {
namespace {

constexpr absl::string_view kDTypes[] = {"fp32", "bf16", "fp16"};

std::string ShapeText(const SymmetricBatch& shape) {
  return absl::StrCat(kDTypes[static_cast<int>(shape.dtype)], " ", shape.n, " ", shape.k, " ",
                      shape.batch);
}

bool ReadDType(absl::string_view text, NsDType& dtype) {
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    if (kDTypes[i] != text) continue;
    dtype = static_cast<NsDType>(i);
    return true;
  }
  return false;
}

bool ReadForm(absl::string_view text, SymmetricForm& form) {
  for (const SymmetricForm known : kSymmetricForms) {
    if (NameOf(known) != text) continue;
    form = known;
    return true;
  }
  return false;
}

bool ReadLine(absl::string_view line, SymmetricBatch& shape, ChosenForm& chosen) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  constexpr size_t kWordsBeforeTimes = 5;
  if (words.size() != kWordsBeforeTimes + std::size(kSymmetricForms)) return false;
  bool reads = ReadDType(words[0], shape.dtype) && absl::SimpleAtoi(words[1], &shape.n) &&
               absl::SimpleAtoi(words[2], &shape.k) && absl::SimpleAtoi(words[3], &shape.batch) &&
               ReadForm(words[4], chosen.form) && shape.n > 0 && shape.k > 0 && shape.batch > 0;
  for (size_t i = 0; reads && i < std::size(kSymmetricForms); ++i) {
    reads = absl::SimpleAtod(words[kWordsBeforeTimes + i], &chosen.microseconds[i]);
  }
  return reads;
}

}  // namespace

absl::optional<ChosenForm> ProductChoice::Find(const SymmetricBatch& shape) const {
  MutexLock lock(mutex_);
  const auto found = chosen_.find(shape);
  if (found == chosen_.end()) return absl::nullopt;
  return found->second;
}

void ProductChoice::Set(const SymmetricBatch& shape, const ChosenForm& chosen) {
  MutexLock lock(mutex_);
  chosen_[shape] = chosen;
}

std::vector<ProductForm> ProductChoice::Forms() const {
  constexpr const char* kWords[] = {"float32", "bfloat16", "float16"};
  MutexLock lock(mutex_);
  std::vector<ProductForm> forms;
  for (const auto& [shape, chosen] : chosen_) {
    forms.push_back({kWords[static_cast<int>(shape.dtype)], static_cast<uint64_t>(shape.n),
                     static_cast<uint64_t>(shape.k), static_cast<uint64_t>(shape.batch),
                     std::string(NameOf(chosen.form))});
  }
  return forms;
}

std::string ProductChoice::Text() const {
  MutexLock lock(mutex_);
  std::string text;
  for (const auto& [shape, chosen] : chosen_) {
    absl::StrAppend(&text, ShapeText(shape), " ", NameOf(chosen.form));
    for (const double time : chosen.microseconds) absl::StrAppend(&text, " ", time);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

absl::Status ProductChoice::Read(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    SymmetricBatch shape;
    ChosenForm chosen;
    if (!ReadLine(line, shape, chosen)) {
      return absl::InvalidArgumentError(
          absl::StrCat("product choice: line '", line,
                       "' must be dtype, n, k, batch, form and the microseconds of ",
                       std::size(kSymmetricForms), " forms"));
    }
    Set(shape, chosen);
  }
  return absl::OkStatus();
}

uint64_t ProductChoice::Digest() const {
  MutexLock lock(mutex_);
  std::string text;
  for (const auto& [shape, chosen] : chosen_) {
    absl::StrAppend(&text, ShapeText(shape), " ", NameOf(chosen.form), "\n");
  }
  return TextDigest(text);
}

SymmetricForm FormByRule(const SymmetricProducts& symmetric, const SymmetricBatch& shape,
                         int multiprocessors) {
  // Below, most tiles touch the diagonal: the library's dense product is as fast.
  constexpr int64_t kLeastForWgmma = 2048;
  // With less than a wave of tiles, our own kernel leaves multiprocessors idle.
  if (shape.n >= kLeastForWgmma && NumSymmetricTiles(shape.n) * shape.batch >= multiprocessors &&
      symmetric.Supports(SymmetricForm::kWgmma, shape)) {
    return SymmetricForm::kWgmma;
  }
  // Below, three waves of blocks and the mirror take as long as the dense product.
  constexpr int64_t kLeastForBlocks = 4096;
  if (shape.n >= kLeastForBlocks && symmetric.Supports(SymmetricForm::kBlocks, shape)) {
    return SymmetricForm::kBlocks;
  }
  return SymmetricForm::kDense;
}

uint64_t TextDigest(absl::string_view text) {
  // FNV-1a.
  uint64_t digest = 0xcbf29ce484222325;
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest;
}

}  // namespace kaon::kernels::cuda
