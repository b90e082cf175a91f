// Logs the calls of a client of real servers and their results. The client appends a line for each
// to a file of its own; after kill -9 the file has all lines up to then. A check reads the files
// back as the operations of tests/simulation/history.h. Owned by one process; one thread.
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

// Each life of a rank computes other gradients, and others again in each timeline. The token weight
// of a gradient tells a record's reader which life computed it.
double TokenWeight(uint32_t rank, uint64_t life);
// Returns the life of a token weight; 0 for initial weights, which are the same for all.
uint64_t LifeOf(uint32_t rank, double token_weight);
// Convert a life and its timeline to the nonce of the model, and back.
uint64_t NonceOf(uint64_t life, uint64_t timeline);
uint64_t LifeOfNonce(uint64_t nonce);
// Returns the loss that a life reports. The weighted mean of several losses identifies their lives.
double LossOf(uint32_t rank, uint64_t life);

class ClientLog {
 public:
  ClientLog(const std::string& path, uint32_t rank, uint64_t life);

  // Log a call before it is made, with the timeline that the client knows. A Return function below
  // logs the result of the call with that number.
  uint64_t CallStep(uint64_t timeline, uint64_t step);
  void ReturnStep(uint64_t call, const kaon::StepRecord& record);
  uint64_t CallPull(uint64_t timeline, uint64_t step);
  // `weights` are ordered by parameter id.
  void ReturnPull(uint64_t call, uint64_t step, absl::Span<const std::vector<float>> weights);

 private:
  uint64_t Call(const char* what, uint64_t timeline, uint64_t step);
  void Append(const std::string& line);

  const uint32_t rank_;
  const uint64_t life_;
  uint64_t calls_ = 0;
  std::ofstream file_;
};

// Everything that the clients have logged.
struct ClientHistory {
  struct Told {
    // Index of the operation of a step; its record is empty before ExplainTold.
    size_t operation = 0;
    kaon::StepRecord record;
    // Every bit of the record that the client got.
    std::string text;
  };

  std::deque<simulation::Operation> operations;
  std::vector<Told> told;
};

// Returns every bit of a client's record of a step as text.
std::string Describe(const kaon::StepRecord& record);

// Adds the lines of one log. Returns INVALID_ARGUMENT for a line that cannot be read; the last one
// may be cut off.
absl::Status ReadClientLog(const std::string& path, ClientHistory& history);

// Completes each step's operation with the record in `log`. If that differs from the record that
// the client got, the operation gets one that is in no log.
void ExplainTold(const simulation::Log& log, ClientHistory& history);

}  // namespace kaon::crash

#endif  // KAON_TESTS_CRASH_CLIENT_LOG_H_
