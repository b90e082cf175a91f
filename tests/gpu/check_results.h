// Output of the check program: one JSON object per line on standard output, as report.py reads
// them. Used by one thread.
#ifndef KAON_TESTS_GPU_CHECK_RESULTS_H_
#define KAON_TESTS_GPU_CHECK_RESULTS_H_

#include <cstdio>
#include <string>

namespace kaon::gpu_check {

class Results {
 public:
  // `json` outlives the object.
  Results(std::string section, std::FILE* json) : section_(std::move(section)), json_(json) {}

  // Writes a figure.
  void Figure(const std::string& name, double value, const std::string& unit);
  // Writes a figure that is a word.
  void Fact(const std::string& name, const std::string& value);
  // Writes a check. `detail` says what failed.
  void Check(const std::string& name, bool ok, const std::string& detail);
  // Writes the reason why there is no figure and no check of this name.
  void Skip(const std::string& name, const std::string& reason);

  int num_failed() const { return num_failed_; }

 private:
  void Line(const std::string& name, const std::string& fields);

  const std::string section_;
  std::FILE* const json_;
  int num_failed_ = 0;
};

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_CHECK_RESULTS_H_
