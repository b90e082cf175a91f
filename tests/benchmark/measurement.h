// What every benchmark prints: a line of a table for people, and one JSON object per line for
// programs. Times are medians of at least five rounds, with the limit measured by turns in the same
// ones. Used by one thread.
#ifndef KAON_TESTS_BENCHMARK_MEASUREMENT_H_
#define KAON_TESTS_BENCHMARK_MEASUREMENT_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kaon::benchmark {

struct Measurement {
  // As docs/benchmarks.md has it.
  std::string name;
  // What was run: sizes, threads.
  std::string settings;
  std::string unit;
  double value = 0;
  // The slowest and the fastest round.
  double min = 0;
  double max = 0;
  // What the machine can do at best, in the same unit, and what that is.
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

// `work` and `limit` by turns, `rounds` times after one that is not counted.
Rounds MeasureByTurns(int rounds, const std::function<void()>& work,
                      const std::function<void()>& limit);

// Of one piece of work, by the clock and by the processors: what all threads of this process used
// meanwhile.
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

// Of `amount` and `limit_amount` per round, in units per second.
void SetRates(const Rounds& rounds, double amount, double limit_amount, Measurement& measurement);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using JsonFile = std::unique_ptr<std::FILE, CloseFile>;

// Where Print writes objects for programs; none for an empty path. CHECKs that it can be written.
JsonFile OpenJson(const std::string& path);

// Prints to standard output, and to `json` unless it is null.
void Print(const Measurement& measurement, std::FILE* json);

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_MEASUREMENT_H_
