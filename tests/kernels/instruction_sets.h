// The instruction sets of this machine that tests force the kernels' loops to use. Any thread. The
// choice applies to the whole process and stays until another one is made.
#ifndef KAON_TESTS_KERNELS_INSTRUCTION_SETS_H_
#define KAON_TESTS_KERNELS_INSTRUCTION_SETS_H_

#include <vector>

#include "kernels/vector_dispatch.h"

namespace kaon::kernels {

inline std::vector<InstructionSet> InstructionSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet isa :
       {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (isa <= WidestInstructionSet()) sets.push_back(isa);
  }
  return sets;
}

// Returns `make` once for each instruction set; each copy chooses its set first.
template <typename Maker>
std::vector<Maker> OnEachInstructionSet(Maker make) {
  std::vector<Maker> makers;
  for (const InstructionSet isa : InstructionSets()) {
    makers.push_back([isa, make](auto... arguments) {
      ChosenInstructionSet() = isa;
      return make(arguments...);
    });
  }
  return makers;
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_INSTRUCTION_SETS_H_
