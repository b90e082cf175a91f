// What LeakSanitizer is not to report in programs that use gRPC: memory that Debian's gRPC and
// c-ares take once and hold until the process ends. Linked in sanitizer builds only, by
// //bazel:grpc.

// The names and their meaning are LeakSanitizer's.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  // A thread-local table of gpr that nobody frees at exit, and the host name c-ares reads at its
  // start.
  return "leak:libgpr.so\nleak:libcares.so\n";
}

extern "C" const char* __lsan_default_options();
extern "C" const char* __lsan_default_options() {
  // The last line of a program is its own.
  return "print_suppressions=0";
}
