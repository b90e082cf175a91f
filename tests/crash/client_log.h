// What a client of real servers calls and is told: it appends a line for each to a file of its own,
// which kill -9 leaves as far as it came, and a check reads them back as the operations of
// tests/simulation/history.h. Owned by one process; one thread.
#ifndef KAON_TESTS_CRASH_CLIENT_LOG_H_
#define KAON_TESTS_CRASH_CLIENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/kaon/client.h"
#include "tests/simulation/history.h"

namespace kaon::crash {

// Each life of a rank computes other gradients, and others in each timeline. A record says of which
// life a gradient is by the weight that it was declared with.
double TokenWeight(uint32_t rank, uint64_t life);
// 0 of initial weights, which are the same for all.
uint64_t LifeOf(uint32_t rank, double token_weight);
// As what the model knows them, and back.
uint64_t NonceOf(uint64_t life, uint64_t timeline);
uint64_t LifeOfNonce(uint64_t nonce);
// What a life reports as its loss: the weighted mean of several tells which lives they were.
double LossOf(uint32_t rank, uint64_t life);

class ClientLog {
 public:
  ClientLog(const std::string& path, uint32_t rank, uint64_t life);

  // About to be called, in a timeline as the client knows; what is returned stands for the call
  // below.
  uint64_t CallStep(uint64_t timeline, uint64_t step);
  void ReturnStep(uint64_t call, const kaon::StepRecord& record);
  uint64_t CallPull(uint64_t timeline, uint64_t step);
  // By parameter id.
  void ReturnPull(uint64_t call, uint64_t step, absl::Span<const std::vector<float>> weights);

 private:
  uint64_t Call(const char* what, uint64_t timeline, uint64_t step);
  void Append(const std::string& line);

  const uint32_t rank_;
  const uint64_t life_;
  uint64_t calls_ = 0;
  std::ofstream file_;
};

// What all clients have logged.
struct ClientHistory {
  struct Told {
    // Of a step. Its record is empty before ExplainTold.
    size_t operation = 0;
    kaon::StepRecord record;
    // All that the client was told, each bit of it.
    std::string text;
  };

  std::deque<simulation::Operation> operations;
  std::vector<Told> told;
};

// Each bit of what a client is told of a step.
std::string Describe(const kaon::StepRecord& record);

// Adds what one log tells. INVALID_ARGUMENT for a line that cannot be read; the last one may be cut
// off.
absl::Status ReadClientLog(const std::string& path, ClientHistory& history);

// The record that a client was told is the one of its step in `log`, or, where that says otherwise,
// one that is in no log.
void ExplainTold(const simulation::Log& log, ClientHistory& history);

}  // namespace kaon::crash

#endif  // KAON_TESTS_CRASH_CLIENT_LOG_H_
