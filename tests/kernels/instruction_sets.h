// The instruction sets that tests force the kernels' loops to: those of this machine. Pure
// functions; the choice itself is the process's.
#ifndef KAON_TESTS_KERNELS_INSTRUCTION_SETS_H_
#define KAON_TESTS_KERNELS_INSTRUCTION_SETS_H_

#include <utility>
#include <vector>

#include "kernels/vector_dispatch.h"
#include "tests/conformance/backend_conformance_fixture.h"

namespace kaon::kernels {

inline std::vector<InstructionSet> InstructionSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet isa :
       {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (isa <= WidestInstructionSet()) sets.push_back(isa);
  }
  return sets;
}

// `make` for each of them, which is the process's until another backend is made.
inline std::vector<BackendMaker> OnEachInstructionSet(BackendMaker make) {
  std::vector<BackendMaker> makers;
  for (const InstructionSet isa : InstructionSets()) {
    makers.emplace_back([isa, make] {
      ChosenInstructionSet() = isa;
      return make();
    });
  }
  return makers;
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_INSTRUCTION_SETS_H_
