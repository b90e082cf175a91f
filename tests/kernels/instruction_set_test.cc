// The loops of every instruction set of this machine produce the same bits as the scalar ones.
// Covers the loops whose other tests compare with a reference, or only with the widest set. Rules,
// means and digests have similar tests of their own.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/dtype.h"
#include "kernels/gemm/blocked_matrix.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/reduce/fold.h"
#include "kernels/state_codec.h"
#include "kernels/vector_dispatch.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// Collects the bytes of results.
class Bits {
 public:
  template <typename T>
  void Add(const std::vector<T>& values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  template <typename T>
  void Add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// The size is no multiple of any register, group or block.
constexpr size_t kElements = 5 * 1024 + 77;

// Every kind of number: normal, subnormal, infinite, none.
std::vector<float> AnyBits(size_t n) {
  std::mt19937 random(7);
  std::vector<float> values(n);
  for (float& value : values) {
    const auto bits = static_cast<uint32_t>(random());
    std::memcpy(&value, &bits, sizeof(value));
  }
  return values;
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Folds gradients of ordinary size, and of sizes that need fp64.
std::string Fold() {
  Bits bits;
  for (const DType dtype : kDTypes) {
    for (const float size : {1.0f, 1e-4f, 3e30f, 1e-30f}) {
      std::vector<float> values = reference::GaussianVector(kElements, 1);
      for (float& value : values) value *= size;
      std::vector<std::byte> grad(kElements * SizeOf(dtype));
      FromFloat(dtype, values, grad.data());
      for (const bool first : {true, false}) {
        std::vector<float> acc(kElements, 0.25f);
        double sum_squares = 0;
        bits.Add(FoldElements(dtype, grad.data(), 0.3f, first, absl::MakeSpan(acc), &sum_squares));
        bits.Add(sum_squares);
        bits.Add(acc);
      }
    }
  }
  return bits.Take();
}

std::string StateCodecs() {
  Bits bits;
  for (const StateDType dtype :
       {StateDType::kFloat32, StateDType::kBFloat16, StateDType::kInt8, StateDType::kSqrtUInt8}) {
    for (const std::vector<float>& values :
         {reference::GaussianVector(kElements, 2), AnyBits(kElements)}) {
      std::vector<std::byte> slot(StateBytes(dtype, kElements));
      EncodeState(dtype, values, 0, absl::MakeSpan(slot));
      bits.Add(slot);
      std::vector<float> decoded(kElements);
      DecodeState(dtype, slot, 0, absl::MakeSpan(decoded));
      bits.Add(decoded);
    }
  }
  return bits.Take();
}

std::string Conversions() {
  Bits bits;
  for (const DType dtype : kDTypes) {
    for (const std::vector<float>& values :
         {reference::GaussianVector(kElements, 3), AnyBits(1 << 16)}) {
      std::vector<std::byte> narrow(values.size() * SizeOf(dtype));
      FromFloat(dtype, values, narrow.data());
      bits.Add(narrow);
    }
    // Every value that a half has.
    std::vector<uint16_t> halves(1 << 16);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(2 * halves.size() / SizeOf(dtype));
    ToFloat(dtype, reinterpret_cast<const std::byte*>(halves.data()), absl::MakeSpan(wide));
    bits.Add(wide);
  }
  return bits.Take();
}

std::string Blocks() {
  Bits bits;
  for (const std::vector<float>& values :
       {reference::GaussianVector(kBlockElements, 4), AnyBits(kBlockElements)}) {
    std::vector<uint16_t> block(kBlockElements);
    std::vector<float> wide(kBlockElements);
    RoundToBlock(values.data(), kBlockSide, kBlockSide, block.data());
    WidenBlock(block.data(), wide.data());
    bits.Add(block);
    bits.Add(wide);
  }
  return bits.Take();
}

// Two steps, so that the second has a momentum.
std::string Muon(NsDType dtype, NsForm form) {
  Bits bits;
  for (const StateDType momentum : {StateDType::kFloat32, StateDType::kInt8}) {
    MuonConfig config;
    config.newton_schulz.dtype = dtype;
    config.newton_schulz.form = form;
    if (form == NsForm::kGram) config.newton_schulz.gram_restarts = {2, 3};
    config.momentum_dtype = momentum;
    CpuBackend backend(std::make_unique<ReferenceGemm>(), 1);
    Parameter parameter(config, {45, 139}, reference::GaussianVector(45 * 139, 5));
    for (int t = 1; t <= 2; ++t) {
      const UpdateResult result =
          parameter.Update(backend, reference::GaussianVector(45 * 139, 5 + t), {1e-2, 0.5, t});
      bits.Add(result.weights_digest);
      bits.Add(result.slots_digest);
    }
    bits.Add(parameter.weight);
    for (const std::vector<float>& slot : parameter.state) bits.Add(slot);
  }
  return bits.Take();
}

struct Computed {
  std::string name;
  std::string (*bits)();
};

void PrintTo(const Computed& computed, std::ostream* out) { *out << computed.name; }

class InstructionSetTest : public ::testing::TestWithParam<Computed> {
 protected:
  ~InstructionSetTest() override { ChosenInstructionSet() = WidestInstructionSet(); }
};

TEST_P(InstructionSetTest, EveryInstructionSetGivesTheSameBits) {
  ChosenInstructionSet() = InstructionSet::kScalar;
  const std::string expected = GetParam().bits();
  for (const InstructionSet isa : InstructionSets()) {
    ChosenInstructionSet() = isa;
    // A dump of the bytes could be megabytes.
    EXPECT_TRUE(GetParam().bits() == expected) << "set " << static_cast<int>(isa);
  }
}

template <NsDType dtype, NsForm form>
std::string MuonOf() {
  return Muon(dtype, form);
}

INSTANTIATE_TEST_SUITE_P(
    Loops, InstructionSetTest,
    ::testing::Values(
        Computed{"Fold", &Fold}, Computed{"StateCodecs", &StateCodecs},
        Computed{"Conversions", &Conversions}, Computed{"Blocks", &Blocks},
        Computed{"MuonInFloat32", &MuonOf<NsDType::kFloat32, NsForm::kStandard>},
        Computed{"MuonInBFloat16", &MuonOf<NsDType::kBFloat16, NsForm::kStandard>},
        Computed{"MuonInFloat16", &MuonOf<NsDType::kFloat16, NsForm::kStandard>},
        Computed{"MuonInGramFormInFloat32", &MuonOf<NsDType::kFloat32, NsForm::kGram>},
        Computed{"MuonInGramFormInBFloat16", &MuonOf<NsDType::kBFloat16, NsForm::kGram>},
        Computed{"MuonInGramFormInFloat16", &MuonOf<NsDType::kFloat16, NsForm::kGram>}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kaon::kernels
