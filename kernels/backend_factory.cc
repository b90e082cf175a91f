// CreateBackend (backend.h): the only place that knows every backend and every library of products.
#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/gemm/amx_gemm.h"
#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/onednn_gemm.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/gemm/tiled_gemm.h"
#include "kernels/offload/offload_backend.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Gemm> MakeAmxGemm(ThreadPool& pool) {
  return std::make_unique<AmxGemm>(
      std::make_unique<TiledGemm>(std::make_unique<OneDnnGemm>(), pool), pool);
}

absl::StatusOr<InstructionSet> ParseIsa(const std::string& isa) {
  const InstructionSet widest = WidestInstructionSet();
  if (isa == "widest") return widest;
  InstructionSet wanted = InstructionSet::kScalar;
  if (isa == "avx512") wanted = InstructionSet::kAvx512;
  if (isa == "avx2") wanted = InstructionSet::kAvx2;
  if (wanted == InstructionSet::kScalar && isa != "scalar") {
    return absl::InvalidArgumentError(
        absl::StrCat("isa: is \"", isa, "\", must be widest, avx512, avx2 or scalar"));
  }
  if (wanted <= widest) return wanted;
  return absl::FailedPreconditionError(
      absl::StrCat("isa: is \"", isa, "\", this machine does not have it"));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads: is ", options.threads, ", must be 1 .. ", kMaxThreads));
  }
  const absl::StatusOr<InstructionSet> isa = ParseIsa(options.isa);
  if (!isa.ok()) return isa.status();
  const bool is_widest = options.gemm.empty();
  if (options.gemm == "amx" || (is_widest && HasAmx())) {
    if (!HasAmx()) {
      return absl::FailedPreconditionError(
          "gemm: is \"amx\", but this machine has no AMX tiles with bf16, or its system does not "
          "let this process use them");
    }
    ChosenInstructionSet() = *isa;
    return std::make_unique<CpuBackend>(MakeAmxGemm, options.threads);
  }
  std::unique_ptr<Gemm> gemm;
  if (options.gemm == "onednn" || is_widest) gemm = std::make_unique<OneDnnGemm>();
  if (options.gemm == "reference") gemm = std::make_unique<ReferenceGemm>();
  if (gemm == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: is \"", options.gemm, "\", must be amx, onednn or reference"));
  }
  ChosenInstructionSet() = *isa;
  return std::make_unique<CpuBackend>(std::move(gemm), options.threads);
}

struct LibraryCloser {
  void operator()(void* library) const { dlclose(library); }
};

absl::StatusOr<std::unique_ptr<Backend>> LoadPlugin(const BackendOptions& options) {
  // A name is not a path: an option must not load a library from another folder.
  const bool plain = std::all_of(options.name.begin(), options.name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
  if (!plain || options.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("backend: is \"", options.name,
                                                   "\", must be letters, digits and underscores"));
  }
  std::string path = absl::StrCat("libkaon_", options.name, ".so");
  if (!options.plugin_dir.empty()) path = absl::StrCat(options.plugin_dir, "/", path);
  std::unique_ptr<void, LibraryCloser> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    const char* reason = dlerror();
    return absl::NotFoundError(absl::StrCat("backend ", options.name, ": cannot load ", path, ": ",
                                            reason != nullptr ? reason : "no reason given"));
  }
  const auto version = reinterpret_cast<int (*)()>(dlsym(library.get(), "kaon_backend_version"));
  const auto create = reinterpret_cast<Backend* (*)(const BackendOptions*, std::string*)>(
      dlsym(library.get(), "kaon_create_backend"));
  if (version == nullptr || create == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend ", options.name, ": ", path,
                     " exports not both of kaon_backend_version and kaon_create_backend"));
  }
  if (version() != kBackendVersion) {
    return absl::FailedPreconditionError(absl::StrCat("backend ", options.name, ": ", path,
                                                      " has interface version ", version(),
                                                      ", this program has ", kBackendVersion));
  }
  std::string error;
  std::unique_ptr<Backend> backend(create(&options, &error));
  if (backend == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend ", options.name, ": ", path, ": ", error));
  }
  // The backend's code is in the library, so the library stays loaded until the process ends.
  static_cast<void>(library.release());
  return backend;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options) {
  if (options.name == "cpu") return CreateCpuBackend(options);
  absl::StatusOr<std::unique_ptr<Backend>> plugin = LoadPlugin(options);
  if (!options.host_memory || !plugin.ok() || (*plugin)->space() == Space::kHost) return plugin;
  absl::StatusOr<std::unique_ptr<Backend>> cpu = CreateCpuBackend(options);
  if (!cpu.ok()) return cpu.status();
  OffloadBackend::Options offload;
  offload.device_memory_bytes = options.device_memory_bytes;
  return OffloadBackend::Create(*std::move(cpu), *std::move(plugin), offload);
}

std::string BuiltInFeatures() {
#if defined(__x86_64__)
  constexpr char kBuiltIn[] = "backend cpu; gemm amx, onednn, reference; isa avx512, avx2, scalar";
#else
  constexpr char kBuiltIn[] = "backend cpu; gemm onednn, reference; isa scalar";
#endif
  return absl::StrCat(kBuiltIn, "; plugins of interface ", kBackendVersion);
}

std::string ChosenIsa() {
  switch (ChosenInstructionSet().load()) {
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kScalar:
      break;
  }
  return "scalar";
}

}  // namespace kaon::kernels
