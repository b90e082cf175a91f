// Runs a fuzz target without libFuzzer: over each corpus file named on the command line, and over
// random changes of it. What every build and machine can do; `--config=fuzz` links libFuzzer
// instead.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

constexpr int kChangesPerInput = 20000;
constexpr uint32_t kSeed = 20261121;

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
  std::vector<std::vector<uint8_t>> corpus(1);
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::cerr << argv[i] << ": cannot be read" << std::endl;
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  for (const std::vector<uint8_t>& input : corpus) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
    for (int i = 0; i < kChangesPerInput; ++i) {
      const std::vector<uint8_t> changed = Change(input, random);
      LLVMFuzzerTestOneInput(changed.data(), changed.size());
    }
  }
  std::cout << corpus.size() << " inputs, " << kChangesPerInput << " changes of each, seed "
            << kSeed << std::endl;
  return 0;
}
