#include "kernels/cuda/products/product_tuning.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cuda/owned_memory.h"
#include "kernels/cuda/products/cross_check.h"
#include "kernels/float_bits.h"

namespace kaon::kernels::cuda {
namespace {

// Two roundings of a sum differ by one unit in the last place at most: 2^-7 of it in bf16, 2^-10 in
// fp16.
float MostDifference(NsDType dtype) { return dtype == NsDType::kBFloat16 ? 0x1p-6f : 0x1p-9f; }

// Matrices of one product: A (n, k), and two results (n, n).
struct Matrices {
  std::byte* a;
  std::byte* c;
  std::byte* d;
  uint32_t* largest_bits;

  Matrices(const SymmetricBatch& shape, std::byte* memory) {
    const int64_t bytes = shape.batch * ElementBytes(shape.dtype);
    const int64_t square = LayoutOf(shape.dtype, shape.n, shape.n).stride * bytes;
    a = memory;
    c = a + LayoutOf(shape.dtype, shape.n, shape.k).stride * bytes;
    d = c + square;
    largest_bits = reinterpret_cast<uint32_t*>(d + square);
  }
  uint64_t bytes_from(const std::byte* memory) const {
    constexpr uint64_t kWordBytes = 256;
    return reinterpret_cast<const std::byte*>(largest_bits) - memory + kWordBytes;
  }
};

// Sums off the diagonal are about 1, and those on it about sqrt(k).
float AlphaOf(const SymmetricBatch& shape) { return 3 / std::sqrt(static_cast<float>(shape.k)); }
constexpr float kBeta = -0.5f;
constexpr float kFloor = 1;

void FillOperands(Stream& stream, const SymmetricBatch& shape, const Matrices& x) {
  FillPattern(stream, {shape.dtype, shape.n, shape.k, shape.batch}, false, x.a);
  FillPattern(stream, {shape.dtype, shape.n, shape.n, shape.batch}, true, x.c);
}

// Microseconds of one product.
double Microseconds(const FormsUnderTest& forms, const Stopwatch& watch, SymmetricForm form,
                    const SymmetricBatch& shape, const Matrices& x) {
  const double operations = 2.0 * static_cast<double>(shape.n) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k) * static_cast<double>(shape.batch);
  const int repeats =
      static_cast<int>(std::clamp(watch.operations_per_round / operations, 1.0, 200.0));
  absl::Duration shortest = absl::InfiniteDuration();
  for (int round = 0; round <= watch.rounds; ++round) {
    forms.on.stream.Synchronize();
    const absl::Time begin = watch.now();
    for (int i = 0; i < repeats; ++i) {
      forms.symmetric.Multiply(forms.on, form, shape, AlphaOf(shape), kBeta, {x.a, x.a, x.c, x.d});
    }
    forms.on.stream.Synchronize();
    // The first round warms up.
    if (round > 0) shortest = std::min(shortest, watch.now() - begin);
  }
  return absl::ToDoubleMicroseconds(shortest) / repeats;
}

absl::Status TuneShape(const FormsUnderTest& forms, const Stopwatch& watch,
                       const SymmetricBatch& shape, ProductChoice& choice) {
  constexpr double kLeastGain = 0.98;
  absl::StatusOr<OwnedMemory> memory = OwnedMemory::OnDevice(forms.device, CrossCheckBytes(shape));
  if (!memory.ok()) return memory.status();
  const Matrices matrices(shape, memory->data());
  ChosenForm chosen;
  double& dense = chosen.microseconds[static_cast<int>(SymmetricForm::kDense)];
  for (const SymmetricForm form : kSymmetricForms) {
    if (!forms.symmetric.Supports(form, shape)) continue;
    const absl::StatusOr<bool> passes = PassesCrossCheck(forms, form, shape, memory->data());
    // A library need not have what a form is made of.
    if (form != SymmetricForm::kDense && absl::IsUnimplemented(passes.status())) continue;
    if (!passes.ok()) return passes.status();
    if (!*passes) continue;
    FillOperands(forms.on.stream, shape, matrices);
    double& time = chosen.microseconds[static_cast<int>(form)];
    time = Microseconds(forms, watch, form, shape, matrices);
    const double best = chosen.microseconds[static_cast<int>(chosen.form)];
    if (form != SymmetricForm::kDense && time < kLeastGain * dense && time < best) {
      chosen.form = form;
    }
  }
  choice.Set(shape, chosen);
  return absl::OkStatus();
}

}  // namespace

uint64_t CrossCheckBytes(const SymmetricBatch& shape) {
  std::byte* const none = nullptr;
  return Matrices(shape, none).bytes_from(none);
}

absl::StatusOr<bool> PassesCrossCheck(const FormsUnderTest& forms, SymmetricForm form,
                                      const SymmetricBatch& shape, std::byte* memory) {
  absl::Status status = forms.symmetric.Find(SymmetricForm::kDense, shape);
  if (status.ok()) status = forms.symmetric.Find(form, shape);
  if (!status.ok()) return status;
  if (form == SymmetricForm::kDense) return true;
  absl::StatusOr<OwnedMemory> largest = OwnedMemory::Pinned(forms.device, sizeof(uint32_t));
  if (!largest.ok()) return largest.status();
  Stream& stream = forms.on.stream;
  const Matrices x(shape, memory);
  FillOperands(stream, shape, x);
  stream.SetZero(x.largest_bits, sizeof(uint32_t));
  const float alpha = AlphaOf(shape);
  forms.symmetric.Multiply(forms.on, form, shape, alpha, kBeta, {x.a, x.a, x.c, x.d});
  forms.symmetric.Multiply(forms.on, SymmetricForm::kDense, shape, alpha, kBeta,
                           {x.a, x.a, x.c, x.c});
  CompareMatrices(stream, {shape.dtype, shape.n, shape.n, shape.batch}, x.c, x.d, kFloor,
                  x.largest_bits);
  stream.CopyOut(x.largest_bits, largest->data(), sizeof(uint32_t));
  stream.Synchronize();
  uint32_t bits = 0;
  memcpy(&bits, largest->data(), sizeof(bits));
  const bool passes = FloatOf(bits) <= MostDifference(shape.dtype);
  if (!passes) {
    LOG(ERROR) << forms.device.properties().name << ": symmetric product " << shape.n << "x"
               << shape.k << ", batch " << shape.batch << ", form " << NameOf(form)
               << " differs from dense by " << FloatOf(bits) << ", at most "
               << MostDifference(shape.dtype) << " is correct; the dense form is used";
  }
  return passes;
}

absl::Status Tune(const FormsUnderTest& forms, const Stopwatch& watch,
                  absl::Span<const SymmetricBatch> shapes, ProductChoice& choice) {
  for (const SymmetricBatch& shape : shapes) {
    const absl::Status status = TuneShape(forms, watch, shape, choice);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace kaon::kernels::cuda
