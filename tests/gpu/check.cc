// kaon-gpu-check SECTION: compares and measures the CUDA backend on this machine's GPU, one section
// of tests/gpu/run.sh. It is built twice: with nvcc for a GPU, and over the kernels on the host.
#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "tests/gpu/sections.h"

#ifndef KAON_CHECKED_BACKEND
#define KAON_CHECKED_BACKEND "cuda"
#endif

namespace kaon::gpu_check {
namespace {

struct Section {
  const char* name;
  void (*run)(const Machine& machine, Results& results);
};

constexpr Section kSections[] = {{"probe", Probe},
                                 {"twins", CheckTwins},
                                 {"conformance", CheckConformance},
                                 {"products", CheckProducts},
                                 {"determinism", CheckDeterminism},
                                 {"bench", Measure}};

constexpr char kUsage[] =
    "Usage: kaon-gpu-check SECTION [--json FILE] [--small] [--device N] [--backend NAME]\n"
    "                      [--plugin-dir DIR] [--repeats N]\n"
    "SECTION is probe, twins, conformance, products, determinism or bench.\n"
    "  --json FILE        where JSON lines go (default: standard output)\n"
    "  --small            tiny sizes, to see that everything runs: figures mean nothing\n"
    "  --device N         ordinal of the GPU (default: 0)\n"
    "  --backend NAME     the backend to compare with the CPU's (default: " KAON_CHECKED_BACKEND
    ")\n"
    "  --plugin-dir DIR   folder of its library (default: where the loader looks)\n"
    "  --repeats N        rounds of the whole calls of `bench`, for a profiler (default: 20)\n"
    "Exit status: 0 if every check passed, 1 if one failed, 2 if the section could not run.\n";

struct Options {
  const Section* section = nullptr;
  std::string json;
  bool small = false;
  int repeats = 20;
  kernels::BackendOptions backend;
};

// Returns false for a wrong command line.
bool Parse(int argc, char** argv, Options& options) {
  options.backend.name = KAON_CHECKED_BACKEND;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--small") {
      options.small = true;
    } else if (argument == "--json" && has_value) {
      options.json = argv[++i];
    } else if (argument == "--device" && has_value) {
      options.backend.device = std::atoi(argv[++i]);
    } else if (argument == "--backend" && has_value) {
      options.backend.name = argv[++i];
    } else if (argument == "--plugin-dir" && has_value) {
      options.backend.plugin_dir = argv[++i];
    } else if (argument == "--repeats" && has_value) {
      options.repeats = std::max(1, std::atoi(argv[++i]));
    } else {
      if (options.section != nullptr) return false;
      for (const Section& section : kSections) {
        if (argument == section.name) options.section = &section;
      }
      if (options.section == nullptr) return false;
    }
  }
  return options.section != nullptr;
}

int CannotRun(const absl::Status& status) {
  std::cerr << "kaon-gpu-check: " << status << std::endl;
  return 2;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::cerr << kUsage;
    return 2;
  }
  std::FILE* json = options.json.empty() ? stdout : std::fopen(options.json.c_str(), "w");
  if (json == nullptr) {
    std::cerr << "kaon-gpu-check: cannot write " << options.json << std::endl;
    return 2;
  }
  kernels::BackendOptions cpu_options;
  cpu_options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto cpu = kernels::CreateBackend(cpu_options);
  if (!cpu.ok()) return CannotRun(cpu.status());
  const auto device = kernels::cuda::Device::Open(options.backend.device);
  if (!device.ok()) return CannotRun(device.status());
  const auto cuda = kernels::CreateBackend(options.backend);
  if (!cuda.ok()) return CannotRun(cuda.status());
  std::cerr << (*cuda)->name() << ": " << (*cuda)->device_class() << std::endl;
  Results results(options.section->name, json);
  options.section->run({**device, **cuda, **cpu, options.small, options.repeats}, results);
  return results.num_failed() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace kaon::gpu_check

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  return kaon::gpu_check::Main(argc, argv);
}
