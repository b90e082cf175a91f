// Suppresses LeakSanitizer reports in programs that use gRPC. Debian's gRPC and c-ares allocate
// this memory once and hold it until the process ends. Only sanitizer builds link this file, by
// //bazel:grpc.

// LeakSanitizer defines the names and their meaning.
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
