#include "kernels/nccl/load_link.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::kernels {
namespace {

LinkOptions OptionsOf(const std::string& plugin, const std::string& folder) {
  LinkOptions options;
  options.network = "lo";
  options.plugin = plugin;
  options.plugin_dir = folder;
  options.nccl_library = "tests/kernels/nccl/libtest_nccl.so";
  return options;
}

TEST(LoadLinkTest, OpensTheLinkOfADevice) {
  const auto link = LoadLink(OptionsOf("cuda_on_host", "kernels/cuda"));
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ((*link)->name(), "NCCL 2.28.9 on cuda_on_host:0 over lo");
  EXPECT_EQ((*link)->device(), 0);
}

TEST(LoadLinkTest, SaysWhatIsAbsent) {
  const auto refused = [](const LinkOptions& options) { return LoadLink(options).status(); };
  LinkOptions options = OptionsOf("cuda_on_host", "kernels/cuda");
  options.network = "kaon9";
  EXPECT_TRUE(absl::IsNotFound(refused(options)));
  EXPECT_TRUE(absl::IsNotFound(refused(OptionsOf("absent", ""))));
  EXPECT_EQ(refused(OptionsOf("empty", "tests/kernels")),
            absl::FailedPreconditionError(
                "NCCL: tests/kernels/libkaon_empty.so has links of version none, expecting 4"));
  options = OptionsOf("cuda_on_host", "kernels/cuda");
  options.nccl_library = "libnccl_absent.so";
  const absl::Status without_nccl = refused(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(without_nccl)) << without_nccl;
  EXPECT_NE(without_nccl.message().find("cannot load libnccl_absent.so"), std::string::npos);
  options = OptionsOf("cuda_on_host", "kernels/cuda");
  options.device = 99;
  EXPECT_TRUE(absl::IsFailedPrecondition(refused(options))) << refused(options);
}

}  // namespace
}  // namespace kaon::kernels
