#include "kernels/cuda/muon/newton_schulz.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "kernels/cuda/muon/iteration_kernels.h"
#include "kernels/cuda/products/long_product.h"
#include "kernels/cuda/products/product_tuning.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/orthogonalize/iteration_steps.h"

namespace kaon::kernels::cuda {
namespace {

uint64_t BatchBytes(NsDType dtype, int64_t rows, int64_t cols, int64_t batch) {
  return LayoutOf(dtype, rows, cols).stride * batch * ElementBytes(dtype);
}

// The matrices of one iteration: X, its successor, then the squares in the order of their creation.
class IterationMemory {
 public:
  IterationMemory(NsDType dtype, const WideBatch& shape, std::byte* memory)
      : x(memory),
        wide_bytes_(BatchBytes(dtype, shape.r, shape.c, shape.batch)),
        square_bytes_(BatchBytes(dtype, shape.r, shape.r, shape.batch)),
        next_(memory + 2 * wide_bytes_) {}

  std::byte* next_x() const { return x + wide_bytes_; }
  std::byte* TakeSquare() { return std::exchange(next_, next_ + square_bytes_); }

  std::byte* const x;

 private:
  const uint64_t wide_bytes_;
  const uint64_t square_bytes_;
  std::byte* next_;
};

BatchedProduct ProductOf(const MatrixProduct& product, NsDType dtype, int64_t batch) {
  const BatchLayout b = product.transpose_b ? LayoutOf(dtype, product.cols, product.inner)
                                            : LayoutOf(dtype, product.inner, product.cols);
  return {.dtype = dtype,
          .rows = product.rows,
          .cols = product.cols,
          .inner = product.inner,
          .transpose_b = product.transpose_b,
          .batch = batch,
          .a = LayoutOf(dtype, product.rows, product.inner),
          .b = b,
          .d = LayoutOf(dtype, product.rows, product.cols)};
}

NewtonSchulzConfig ConfigOf(NewtonSchulzConfig config) {
  if (Has(SeededBug::kRestartMissing)) config.gram_restarts.clear();
  return config;
}

}  // namespace

// Finds algorithms and forms, and queues no product.
class NewtonSchulzPlan::Search {
 public:
  using Matrix = std::byte*;

  explicit Search(const NewtonSchulzPlan& plan) : plan_(plan) {}

  const absl::Status& status() const { return status_; }
  const std::map<SymmetricBatch, SymmetricForm>& forms() const { return forms_; }

  Matrix MakeSquare() { return nullptr; }
  void Scale(int64_t, Matrix, float, Matrix) {}
  void AddToDiagonal(int64_t, float, Matrix) {}
  void Multiply(const MatrixProduct& product, Matrix, Matrix, const Matrix*, Matrix) {
    const NsDType dtype = plan_.config_.dtype;
    const int64_t batch = plan_.shape_.batch;
    status_.Update(FindInPieces(plan_.engine_.products, ProductOf(product, dtype, batch)));
    if (!status_.ok() || !product.symmetric) return;
    status_ = FindForm({dtype, product.rows, product.inner, batch});
  }

 private:
  // A chosen form is checked again, since the choice may be another device's.
  absl::Status FindForm(const SymmetricBatch& shape) {
    const ProductEngine& engine = plan_.engine_;
    if (forms_.count(shape) != 0) return absl::OkStatus();
    const SymmetricBatch kind = KindOf(shape);
    ChosenForm chosen;
    chosen.form = FormByRule(engine.symmetric, kind, engine.device.properties().multiprocessors);
    if (const absl::optional<ChosenForm> known = engine.choice.Find(kind)) chosen = *known;
    if (!engine.symmetric.Supports(chosen.form, shape)) chosen.form = SymmetricForm::kDense;
    const absl::StatusOr<bool> passes = PassesCrossCheck(
        {engine.device, engine.symmetric, engine.on}, chosen.form, shape, plan_.memory_);
    // A library need not have what a form is made of.
    const bool is_missing = absl::IsUnimplemented(passes.status());
    if (!passes.ok() && !is_missing) return passes.status();
    if (is_missing || !*passes) chosen.form = SymmetricForm::kDense;
    engine.choice.Set(kind, chosen);
    forms_.emplace(shape, chosen.form);
    return absl::OkStatus();
  }

  const NewtonSchulzPlan& plan_;
  absl::Status status_;
  std::map<SymmetricBatch, SymmetricForm> forms_;
};

class NewtonSchulzPlan::Queue {
 public:
  using Matrix = std::byte*;

  Queue(const NewtonSchulzPlan& plan, IterationMemory& memory) : plan_(plan), memory_(memory) {}

  Matrix MakeSquare() { return memory_.TakeSquare(); }
  void Scale(int64_t n, Matrix from, float factor, Matrix to) {
    cuda::Scale(stream(), {dtype(), n, batch()}, from, factor, to);
  }
  void AddToDiagonal(int64_t n, float value, Matrix x) {
    cuda::AddToDiagonal(stream(), {dtype(), n, batch()}, value, x);
  }
  void Multiply(const MatrixProduct& product, Matrix a, Matrix b, const Matrix* addend, Matrix to) {
    const ProductEngine& engine = plan_.engine_;
    const ProductOperands operands = {a, b, addend == nullptr ? nullptr : *addend, to};
    if (product.symmetric) {
      const SymmetricBatch shape = {dtype(), product.rows, product.inner, batch()};
      const SymmetricForm form = plan_.forms_.at(shape);
      if (form != SymmetricForm::kDense) {
        engine.symmetric.Multiply(engine.on, form, shape, product.alpha, product.beta, operands);
        return;
      }
    }
    MultiplyInPieces(engine.products, engine.on, ProductOf(product, dtype(), batch()),
                     product.alpha, product.beta, operands);
  }

 private:
  NsDType dtype() const { return plan_.config_.dtype; }
  int64_t batch() const { return plan_.shape_.batch; }
  Stream& stream() const { return plan_.engine_.on.stream; }

  const NewtonSchulzPlan& plan_;
  IterationMemory& memory_;
};

uint64_t NewtonSchulzPlan::MemoryBytes(const NewtonSchulzConfig& config, const WideBatch& shape) {
  const int squares = config.form == NsForm::kGram && shape.r < shape.c ? 3 : 1;
  // The largest cross-check has X and two squares, and lies in X, its successor and the first
  // square, up to its last word.
  const SymmetricBatch gram = {config.dtype, shape.r, shape.c, shape.batch};
  const uint64_t bytes = 2 * BatchBytes(config.dtype, shape.r, shape.c, shape.batch) +
                         squares * BatchBytes(config.dtype, shape.r, shape.r, shape.batch);
  return std::max(bytes, CrossCheckBytes(gram));
}

absl::StatusOr<std::unique_ptr<NewtonSchulzPlan>> NewtonSchulzPlan::Create(
    const ProductEngine& engine, const NewtonSchulzConfig& config, const WideBatch& shape,
    std::byte* memory) {
  const absl::optional<NewtonSchulzCoefficientSet> set = FindCoefficientSet(config);
  CHECK(set) << "coefficient set " << static_cast<int>(config.coefficients) << " has no row";
  auto plan = absl::WrapUnique(new NewtonSchulzPlan(engine, ConfigOf(config), *set, shape, memory));
  // The library's heuristic asks the thread's current device: the stream's.
  static_cast<void>(engine.on.stream.native());
  Search search(*plan);
  plan->RunSteps(search);
  if (!search.status().ok()) return search.status();
  plan->forms_ = search.forms();
  // The first run loads kernels, which a capture does not allow for certain.
  plan->RunDirectly();
  engine.on.stream.Synchronize();
  engine.on.stream.BeginCapture();
  plan->RunDirectly();
  plan->graph_ = engine.on.stream.EndCapture();
  return plan;
}

NewtonSchulzPlan::NewtonSchulzPlan(const ProductEngine& engine, const NewtonSchulzConfig& config,
                                   const NewtonSchulzCoefficientSet& set, const WideBatch& shape,
                                   std::byte* memory)
    : engine_(engine), config_(config), set_(set), shape_(shape), memory_(memory) {
  if (config_.coefficients == NsCoefficients::kCustom) set_.triples = config_.custom;
}

template <typename Operations>
std::byte* NewtonSchulzPlan::RunSteps(Operations& operations) const {
  const Iteration iteration = {config_, set_, shape_.r, shape_.c};
  const IterationMemory memory(config_.dtype, shape_, memory_);
  std::byte* x = memory.x;
  std::byte* next_x = memory.next_x();
  std::byte* polynomial = operations.MakeSquare();
  IterationSteps<Operations>(iteration, operations, x, next_x, polynomial).Run();
  return Has(SeededBug::kSwappedX) ? next_x : x;
}

void NewtonSchulzPlan::Run() { engine_.on.stream.Launch(*graph_); }

void NewtonSchulzPlan::RunDirectly() {
  IterationMemory memory(config_.dtype, shape_, memory_);
  Queue queue(*this, memory);
  result_ = RunSteps(queue);
}

}  // namespace kaon::kernels::cuda
