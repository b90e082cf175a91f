#include "tests/benchmark/measurement.h"

#include <glog/logging.h>
#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/steady_clock.h"

namespace kaon::benchmark {

namespace {

double SecondsOf(const std::function<void()>& run) {
  const absl::Time start = SteadyNow();
  run();
  return absl::ToDoubleSeconds(SteadyNow() - start);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double CpuSeconds() {
  rusage usage;
  PCHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Rounds MeasureByTurns(int rounds, const std::function<void()>& work,
                      const std::function<void()>& limit) {
  Rounds measured;
  work();
  limit();
  for (int i = 0; i < rounds; ++i) {
    measured.work.push_back(SecondsOf(work));
    measured.limit.push_back(SecondsOf(limit));
  }
  return measured;
}

Spent SpentBy(const std::function<void()>& work) {
  const double cpu_before = CpuSeconds();
  const absl::Time start = SteadyNow();
  work();
  return {absl::ToDoubleSeconds(SteadyNow() - start), CpuSeconds() - cpu_before};
}

void SetRates(const Rounds& rounds, double amount, double limit_amount, Measurement& measurement) {
  const auto [fastest, slowest] = std::minmax_element(rounds.work.begin(), rounds.work.end());
  measurement.value = amount / Median(rounds.work);
  measurement.min = amount / *slowest;
  measurement.max = amount / *fastest;
  const auto [nearest, farthest] = std::minmax_element(rounds.limit.begin(), rounds.limit.end());
  measurement.limit = limit_amount / Median(rounds.limit);
  measurement.limit_min = limit_amount / *farthest;
  measurement.limit_max = limit_amount / *nearest;
}

JsonFile OpenJson(const std::string& path) {
  if (path.empty()) return nullptr;
  JsonFile file(std::fopen(path.c_str(), "w"));
  PCHECK(file != nullptr) << path;
  return file;
}

void Print(const Measurement& m, std::FILE* json) {
  const double ratio = m.value / m.limit;
  absl::PrintF("%-12s %-44s %9.2f %s (%.2f .. %.2f), %s %.2f (%.2f .. %.2f), ratio %.2f\n", m.name,
               m.settings, m.value, m.unit, m.min, m.max, m.limit_name, m.limit, m.limit_min,
               m.limit_max, ratio);
  std::fflush(stdout);
  if (json == nullptr) return;
  absl::FPrintF(json,
                "{\"name\": \"%s\", \"value\": %.6g, \"min\": %.6g, \"max\": %.6g, \"unit\": "
                "\"%s\", \"limit\": %.6g, \"limit_min\": %.6g, \"limit_max\": %.6g, "
                "\"limit_name\": \"%s\", \"ratio\": %.4f, \"settings\": \"%s\"}\n",
                m.name, m.value, m.min, m.max, m.unit, m.limit, m.limit_min, m.limit_max,
                m.limit_name, ratio, m.settings);
}

}  // namespace kaon::benchmark
