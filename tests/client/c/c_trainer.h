// A trainer in C11 over the C API, for kaon_test.cc. One thread.
#ifndef KAON_TESTS_CLIENT_C_C_TRAINER_H_
#define KAON_TESTS_CLIENT_C_C_TRAINER_H_

#ifdef __cplusplus
extern "C" {
#endif

// Trains a job of its own through the coordinator at `endpoint`, and compares every weight with
// plain SGD. Prints what is wrong, and returns how many checks failed.
int RunCTrainer(const char* endpoint);

#ifdef __cplusplus
}
#endif

#endif  // KAON_TESTS_CLIENT_C_C_TRAINER_H_
