#include "server/disk/system_error.h"

#include <gtest/gtest.h>

#include "server/disk/device_error.h"

namespace kaon::disk {
namespace {

absl::StatusCode CodeOf(int error) { return SystemError("reading", "/a", error).code(); }

TEST(SystemErrorTest, NamesWhatThePathAndTheReason) {
  EXPECT_EQ(SystemError("reading", "/a/b", ENOSPC).message(),
            "reading /a/b: No space left on device");
}

TEST(SystemErrorTest, TellsWhatTheCallerCanDo) {
  for (const int full : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM}) {
    EXPECT_EQ(CodeOf(full), absl::StatusCode::kResourceExhausted) << full;
  }
  for (const int broken : {EIO, ENXIO, ENODEV, EBADMSG, EUCLEAN}) {
    EXPECT_TRUE(IsDeviceError(SystemError("reading", "/a", broken))) << broken;
  }
  EXPECT_EQ(CodeOf(ENOENT), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(EEXIST), absl::StatusCode::kAlreadyExists);
  for (const int wrong : {EACCES, EROFS, EISDIR, ELOOP, EINVAL}) {
    EXPECT_EQ(CodeOf(wrong), absl::StatusCode::kFailedPrecondition) << wrong;
  }
}

TEST(SystemErrorTest, RepeatsACallThatASignalInterrupted) {
  int calls = 0;
  EXPECT_EQ(Repeat([&] {
              errno = calls++ < 2 ? EINTR : EIO;
              return -1;
            }),
            -1);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(errno, EIO);
}

}  // namespace
}  // namespace kaon::disk
