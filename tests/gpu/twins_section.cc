#include "tests/gpu/sections.h"

namespace kaon::gpu_check {

void CheckTwins(const Machine&, Results& results) { results.Skip("", "not yet"); }

}  // namespace kaon::gpu_check
