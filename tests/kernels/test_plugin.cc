// A backend plugin as small as can be: proves that CreateBackend loads one. Built into
// libkaon_echo.so, and with another interface version into libkaon_stale.so.
#include <memory>
#include <string>

#include "kernels/backend.h"

#ifndef TEST_PLUGIN_VERSION
#define TEST_PLUGIN_VERSION kaon::kernels::kBackendVersion
#endif

namespace kaon::kernels {
namespace {

class EchoBackend final : public Backend {
 public:
  std::string name() const override { return "echo"; }
  int64_t Fold(DType, const std::byte*, float, bool, absl::Span<float>, double*) override {
    return 4711;
  }
  MeanFacts FinishMean(const MeanScalars&, absl::Span<float>) override { return {}; }
  UpdateResult ApplyUpdate(const RuleConfig&, const UpdateScalars&, absl::Span<const uint64_t>,
                           const UpdateBuffers&) override {
    return {};
  }
};

}  // namespace
}  // namespace kaon::kernels

extern "C" int kaon_backend_version() { return TEST_PLUGIN_VERSION; }

extern "C" kaon::kernels::Backend* kaon_create_backend() {
  return std::make_unique<kaon::kernels::EchoBackend>().release();
}
