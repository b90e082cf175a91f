// Memory of this process, for tests that check that it is bounded (P17). Free functions; any
// thread.
#ifndef KAON_TESTS_TESTING_RESIDENT_MEMORY_H_
#define KAON_TESTS_TESTING_RESIDENT_MEMORY_H_

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace kaon::testing {

// Sanitizers shadow every byte and keep freed memory, so a bound means nothing there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

inline uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Returns the most memory that the process ever had; 0 if the kernel does not report it.
inline uint64_t PeakResidentBytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  uint64_t kib = 0;
  while (file >> word) {
    if (word == "VmHWM:" && file >> kib) return kib << 10;
  }
  return 0;
}

// Waits up to 10 s until the process has less than `bound`. gRPC releases the data of streams that
// were cut off some time later. Memory that the C library keeps after it was freed is not counted,
// such as the tens of MiB of a test's excessive message.
inline uint64_t ResidentBytesOnceBelow(uint64_t bound) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  uint64_t bytes = ResidentBytes();
  while (bytes >= bound && std::chrono::steady_clock::now() < until) {
    malloc_trim(0);
    std::this_thread::yield();
    bytes = ResidentBytes();
  }
  return bytes;
}

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_RESIDENT_MEMORY_H_
