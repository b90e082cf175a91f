// Runs a fuzz target without libFuzzer, which works in every build and on every machine;
// `--config=fuzz` links libFuzzer instead. Runs over each corpus file of the command line, then
// over random changes of them until --seconds=N have passed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

// Changes of each input in one turn. At least one turn runs, however slow the machine is.
constexpr int kChangesPerInput = 500;
constexpr uint32_t kSeed = 20261121;
constexpr char kSeconds[] = "--seconds=";

std::vector<uint8_t> Change(std::vector<uint8_t> input, std::mt19937& random) {
  const int changes = 1 + random() % 4;
  for (int i = 0; i < changes; ++i) {
    const size_t at = random() % (input.size() + 1);
    switch (random() % 4) {
      case 0:
        input.insert(input.begin() + at, static_cast<uint8_t>(random()));
        break;
      case 1:
        input.resize(at);
        break;
      case 2:
        if (at < input.size()) input.erase(input.begin() + at);
        break;
      default:
        if (at < input.size()) input[at] = static_cast<uint8_t>(random());
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937 random(kSeed);
  std::chrono::seconds limit(1);
  std::vector<std::vector<uint8_t>> corpus(1);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kSeconds, sizeof(kSeconds) - 1) == 0) {
      limit = std::chrono::seconds(std::atoi(argv[i] + sizeof(kSeconds) - 1));
      continue;
    }
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::cerr << argv[i] << ": cannot be read" << std::endl;
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  for (const std::vector<uint8_t>& input : corpus) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  uint64_t changes = 0;
  do {
    for (const std::vector<uint8_t>& input : corpus) {
      for (int i = 0; i < kChangesPerInput; ++i) {
        const std::vector<uint8_t> changed = Change(input, random);
        LLVMFuzzerTestOneInput(changed.data(), changed.size());
        ++changes;
      }
    }
  } while (std::chrono::steady_clock::now() < end);
  std::cout << corpus.size() << " inputs, " << changes << " changes of them, seed " << kSeed
            << std::endl;
  return 0;
}
