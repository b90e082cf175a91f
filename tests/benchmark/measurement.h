// Prints the result of a benchmark: a line of a table for people, and one JSON object per line for
// programs. Times are medians of at least five rounds; each round measures work and limit in turn.
// Used by one thread.
#ifndef KAON_TESTS_BENCHMARK_MEASUREMENT_H_
#define KAON_TESTS_BENCHMARK_MEASUREMENT_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kaon::benchmark {

struct Measurement {
  // Name of the row in docs/benchmarks.md.
  std::string name;
  // Sizes, threads and other settings of the run.
  std::string settings;
  std::string unit;
  double value = 0;
  // Slowest and fastest round.
  double min = 0;
  double max = 0;
  // Best value that the machine can reach, in the same unit, and the name of that limit.
  double limit = 0;
  double limit_min = 0;
  double limit_max = 0;
  std::string limit_name;
};

// Seconds of each round.
struct Rounds {
  std::vector<double> work;
  std::vector<double> limit;
};

// Runs `work` and `limit` in turn, `rounds` times after one round that does not count.
Rounds MeasureByTurns(int rounds, const std::function<void()>& work,
                      const std::function<void()>& limit);

// Time of one piece of work: wall time, and CPU time of all threads of this process.
struct Spent {
  double seconds = 0;
  double cpu_seconds = 0;
};

Spent SpentBy(const std::function<void()>& work);

struct SpentOfRounds {
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;

  void Add(const Spent& round) {
    seconds.push_back(round.seconds);
    cpu_seconds.push_back(round.cpu_seconds);
  }
};

// Sets the rates in units per second; a round does `amount` of work and `limit_amount` of the
// limit.
void SetRates(const Rounds& rounds, double amount, double limit_amount, Measurement& measurement);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using JsonFile = std::unique_ptr<std::FILE, CloseFile>;

// Opens the file to which Print writes JSON objects; null for an empty path. CHECKs that it can be
// written.
JsonFile OpenJson(const std::string& path);

// Prints to standard output, and to `json` unless it is null.
void Print(const Measurement& measurement, std::FILE* json);

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_MEASUREMENT_H_
