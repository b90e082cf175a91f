#include "server/monitor/metrics/http_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

namespace kaon::metrics {
namespace {

using ::testing::HasSubstr;

class HttpSettingsTest : public testing::Test {
 protected:
  HttpSettingsTest() { settings_.address = "127.0.0.1:0"; }

  std::string TokenFile(const std::string& text, mode_t mode = 0600) {
    const std::string path = testing::TempDir() + "/token";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    const absl::Status status = CheckHttpSettings(settings_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  HttpSettings settings_;
};

TEST_F(HttpSettingsTest, NeedsNothingOnLoopback) {
  EXPECT_TRUE(CheckHttpSettings(settings_).ok());
  EXPECT_EQ(HttpOptionsOf(settings_)->token, "");
  settings_.address = "";
  EXPECT_TRUE(CheckHttpSettings(settings_).ok());
}

TEST_F(HttpSettingsTest, NamesWhatAnOpenAddressNeeds) {
  settings_.address = "0.0.0.0:7711";
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "set metrics_token_file to a file");
  settings_.token_file = TokenFile("0123456789abcdef\n");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "set tls, or use 127.0.0.1");
  settings_.tls.set_certificate_file("c");
  settings_.tls.set_private_key_file("k");
  EXPECT_TRUE(CheckHttpSettings(settings_).ok());
  const absl::StatusOr<HttpOptions> options = HttpOptionsOf(settings_);
  EXPECT_EQ(options->token, "0123456789abcdef");
  EXPECT_EQ(options->certificate_file, "c");
}

TEST_F(HttpSettingsTest, SpeaksPlainHttpOnLoopback) {
  settings_.tls.set_certificate_file("c");
  EXPECT_EQ(HttpOptionsOf(settings_)->certificate_file, "");
}

TEST_F(HttpSettingsTest, RefusesAnAddressOfAnotherForm) {
  settings_.address = "http://localhost:7711";
  ExpectRefused(absl::StatusCode::kInvalidArgument, "must be host:port");
  settings_.address = "";
  settings_.token_file = "t";
  ExpectRefused(absl::StatusCode::kInvalidArgument, "metrics_address is empty");
}

TEST_F(HttpSettingsTest, RefusesATokenThatIsNone) {
  settings_.token_file = "/nowhere/token";
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "'/nowhere/token' cannot be read");
  settings_.token_file = TokenFile("0123456789abcdef", 0644);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has mode 0644");
  settings_.token_file = TokenFile("short");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "must hold 16 .. 256");
  settings_.token_file = TokenFile("0123456789abcdef; Path=/");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "letters, digits");
  settings_.token_file = TokenFile(std::string(257, 'a'));
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "must hold 16 .. 256");
  settings_.token_file = TokenFile(std::string(256, 'a'));
  EXPECT_TRUE(CheckHttpSettings(settings_).ok());
}

}  // namespace
}  // namespace kaon::metrics
