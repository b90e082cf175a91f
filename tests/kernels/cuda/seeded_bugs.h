// Runs checks with one bug of kernels/cuda/seeded_bug.h after the other. Tests that use it build
// their libraries with KAON_SEEDED_BUG=-1. One thread.
#ifndef KAON_TESTS_KERNELS_CUDA_SEEDED_BUGS_H_
#define KAON_TESTS_KERNELS_CUDA_SEEDED_BUGS_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {

// Runs `passes` in a process of its own with the bug built in. Returns true if it returns false,
// crashes, or does not end within a minute.
inline bool IsFound(SeededBug bug, const std::function<bool()>& passes) {
  const pid_t child = fork();
  if (child == 0) {
    // The report of a crash is of no interest.
    if (bug != SeededBug::kNone) (void)!freopen("/dev/null", "w", stderr);
    alarm(60);
    seeded_bug = bug;
    _exit(passes() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_SEEDED_BUGS_H_
