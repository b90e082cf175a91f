// Suppresses LeakSanitizer reports in programs that use gRPC. Debian's gRPC and c-ares allocate
// this memory once and hold it until the process ends. Only sanitizer builds link this file, by
// //bazel:grpc.

// LeakSanitizer defines the names and their meaning.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  // gpr never frees a thread-local table at exit, nor c-ares the host name that it reads at its
  // start.
  return "leak:libgpr.so\nleak:libcares.so\n";
}

extern "C" const char* __lsan_default_options();
extern "C" const char* __lsan_default_options() {
  // Keep LeakSanitizer from printing its suppressions as a program's last line.
  return "print_suppressions=0";
}
