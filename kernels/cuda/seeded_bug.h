// GPU bugs that can be built in to verify that tests on the host find each of them.
// KAON_SEEDED_BUG is the number of the bug in this build. In every product it is 0, and Has() is a
// constant that leaves no trace. A test library with KAON_SEEDED_BUG=-1 has all of them, and
// seeded_bug chooses one at run time. A bug is one `Has(...)` in one place. Any thread, except that
// seeded_bug is set while no kernel runs.
#ifndef KAON_KERNELS_CUDA_SEEDED_BUG_H_
#define KAON_KERNELS_CUDA_SEEDED_BUG_H_

#include "kernels/host_device.h"

#ifndef KAON_SEEDED_BUG
#define KAON_SEEDED_BUG 0
#endif

namespace kaon::kernels::cuda {

enum class SeededBug {
  kNone = 0,
  // symmetric_kernels.cu and symmetric_schedule.cc
  kFullWaitMissing = 1,
  kEmptyWaitMissing = 2,
  kEmptyParityWrong = 3,
  kArrivalCountWrong = 4,
  kTransactionBytesWrong = 5,
  kStepOffByOne = 6,
  kDescriptorStrideWrong = 7,
  kReleasedBeforeRead = 8,
  kSumsReadBeforeWait = 9,
  kSumsNotCleared = 10,
  kProductsNotFenced = 11,
  kTileReadBeforeWritten = 12,
  kTileOverwrittenEarly = 13,
  kMirrorIndexWrong = 14,
  kUpperHalfStored = 15,
  kBatchIgnored = 16,
  kOffsetIn32Bits = 17,
  kLastPartMissing = 18,
  kPartsOverlap = 19,
  kRaggedRowsStored = 20,

  // Element-wise kernels.
  kNormWithoutBarrier = 101,
  kFoldLanesInOtherOrder = 102,
  kDigestWithoutTail = 103,
  kTailOffByOne = 104,
  kOffset32Bits = 105,
  kStaleSlot = 106,
  kScaleOfHalfGroup = 107,
  kNotTransposedBack = 108,
  kTileEdgeOffByOne = 109,
  kSquaresNotWidened = 110,
  kNanInLargest = 111,
  kFirstOfBatchOnly = 112,
  kTileReadTooEarly = 113,
  kFactsOfWarpLost = 114,
  // Order of streams, events and page-locked memory.
  kSlotReusedBeforeItsEvent = 201,
  kCopyNotAfterFolds = 202,
  kFactsReadBeforeTheMean = 203,
  kChunkCopiedOnOtherStream = 204,
  kPieceReusedBeforeItsEvent = 205,
  kMeanOnOtherStream = 206,
  kResultsReadBeforeTheWait = 207,
  kResultsNotZeroed = 208,

  // Products and Newton-Schulz.
  kStaleGraphMemory = 301,
  kLastBlockNotMirrored = 302,
  kWrongBatchStride = 303,
  kSwappedX = 304,
  kRestartMissing = 305,
  kStaleGraphConfig = 306,
  kStripMissing = 307,
  kDiagonalOfFirstOnly = 308,
};

#if KAON_SEEDED_BUG < 0
inline SeededBug seeded_bug = SeededBug::kNone;
inline bool Has(SeededBug bug) { return bug == seeded_bug; }
#else
KAON_HOST_DEVICE constexpr bool Has(SeededBug bug) {
  return static_cast<int>(bug) == KAON_SEEDED_BUG && bug != SeededBug::kNone;
}
#endif

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_SEEDED_BUG_H_
