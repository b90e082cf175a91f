// Bugs of device code that can be built in, one at a time, to verify that the tests find each of
// them. KAON_SEEDED_BUG is the number of the bug in this build; 0 in every product, where Has() is
// a constant that leaves no trace. Constants only; any thread.
#ifndef KAON_KERNELS_CUDA_SEEDED_BUG_H_
#define KAON_KERNELS_CUDA_SEEDED_BUG_H_

#include "kernels/host_device.h"

#ifndef KAON_SEEDED_BUG
#define KAON_SEEDED_BUG 0
#endif

namespace kaon::kernels::cuda {

enum class SeededBug {
  kNone = 0,
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
  kRaggedRowsStored = 20,
  kPartsOverlap = 19,
  kLastPartMissing = 18,
  kOffsetIn32Bits = 17,
  kBatchIgnored = 16,
  kUpperHalfStored = 15,
  kMirrorIndexWrong = 14,
  kTileOverwrittenEarly = 13,
  kTileReadBeforeWritten = 12,
  kProductsNotFenced = 11,
  kSumsNotCleared = 10,
  kSumsReadBeforeWait = 9,
  kReleasedBeforeRead = 8,
  kDescriptorStrideWrong = 7,
  kStepOffByOne = 6,
  kTransactionBytesWrong = 5,
  kArrivalCountWrong = 4,
  kEmptyParityWrong = 3,
  kEmptyWaitMissing = 2,
  kFullWaitMissing = 1,
};

KAON_HOST_DEVICE constexpr bool Has(SeededBug bug) {
  return static_cast<int>(bug) == KAON_SEEDED_BUG;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_SEEDED_BUG_H_
