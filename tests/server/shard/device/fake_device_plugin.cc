// libkaon_fake.so: a FakeDeviceBackend for servers that load their backend by its name.
#include <memory>
#include <string>

#include "tests/server/shard/device/fake_device_backend.h"

extern "C" int kaon_backend_version() { return kaon::kernels::kBackendVersion; }

extern "C" kaon::kernels::Backend* kaon_create_backend(const kaon::kernels::BackendOptions* options,
                                                       std::string* error) {
  kaon::kernels::BackendOptions cpu;
  cpu.gemm = options->gemm;
  cpu.isa = options->isa;
  cpu.threads = options->threads;
  auto backend = kaon::kernels::CreateBackend(cpu);
  if (backend.ok() && options->device == 0) {
    return std::make_unique<kaon::shard::FakeDeviceBackend>(*std::move(backend)).release();
  }
  *error = backend.ok() ? "there is one device, 0" : std::string(backend.status().message());
  return nullptr;
}
