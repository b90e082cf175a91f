// Runs code as in a container whose seccomp profile forbids a system call. Any thread.
#ifndef KAON_TESTS_TESTING_WITHOUT_SYSTEM_CALL_H_
#define KAON_TESTS_TESTING_WITHOUT_SYSTEM_CALL_H_

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <thread>

namespace kaon::testing {

// Runs `code` on a thread of its own, where call `number` (__NR_...) fails with EPERM. The filter
// cannot be removed, and threads inherit it.
inline void WithoutSystemCall(uint32_t number, const std::function<void()>& code) {
  std::thread thread([number, &code] {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    code();
  });
  thread.join();
}

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_WITHOUT_SYSTEM_CALL_H_
