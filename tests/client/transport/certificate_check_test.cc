#include "client/transport/certificate_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>

#include "tests/server/auth/certificates.h"

namespace kaon::client {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const CertificateUse kAdmin = {.roles = {proto::Role::kAdmin}, .calls = true};

class CertificateCheckTest : public ::testing::Test {
 protected:
  // One line, that names the file.
  static void ExpectFault(const absl::StatusOr<std::string>& checked, const std::string& file,
                          const std::string& fault) {
    EXPECT_EQ(checked.status().code(), absl::StatusCode::kFailedPrecondition) << file;
    EXPECT_THAT(checked.status().message(), AllOf(HasSubstr("'" + file + "' "), HasSubstr(fault)));
    EXPECT_EQ(checked.status().message().find('\n'), absl::string_view::npos);
  }

  std::string Write(const std::string& text) {
    const std::string path = certificates_.directory() + "/written";
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path;
  }

  static absl::Time InHours(int hours) {
    return absl::FromTimeT(std::time(nullptr)) + absl::Hours(hours);
  }

  const testing::Certificates certificates_{"--extra wizard=wizard"};
  const kaon::TlsFiles good_ = certificates_.Client("admin");
};

TEST_F(CertificateCheckTest, TakesWhatTheScriptMakes) {
  EXPECT_EQ(*CheckCertificates({}, kAdmin), "");
  EXPECT_EQ(*CheckCertificates(good_, kAdmin), "");
  EXPECT_EQ(*CheckCertificates(certificates_.Client("coordinator"),
                               {{proto::Role::kCoordinator}, true, true}),
            "");
  EXPECT_EQ(*CheckCertificates(certificates_.Client("shard"), {{proto::Role::kShard}, true, false}),
            "");
}

TEST_F(CertificateCheckTest, NamesTheFileThatIsNotPem) {
  kaon::TlsFiles files = good_;
  files.ca = Write("-----BEGIN CERTIFICATE-----\nAAAA\n");
  ExpectFault(CheckCertificates(files, kAdmin), files.ca, "holds no PEM certificate");
  files = good_;
  files.certificate = good_.private_key;
  ExpectFault(CheckCertificates(files, kAdmin), files.certificate, "holds no PEM certificate");
  files = good_;
  files.private_key = Write("secret");
  ExpectFault(CheckCertificates(files, kAdmin), files.private_key, "holds no PEM key");
}

TEST_F(CertificateCheckTest, RefusesAnotherKeyAndAnotherCa) {
  kaon::TlsFiles files = good_;
  files.private_key = certificates_.Client("worker-0").private_key;
  ExpectFault(CheckCertificates(files, kAdmin), files.private_key,
              "is not the key of certificate file '" + good_.certificate + "'");
  const testing::Certificates strangers("");
  files = good_;
  files.ca = strangers.Client("admin").ca;
  ExpectFault(CheckCertificates(files, kAdmin), files.certificate,
              "is not good for ca file '" + files.ca + "'");
}

TEST_F(CertificateCheckTest, RefusesAnotherRoleOrUse) {
  ExpectFault(CheckCertificates(certificates_.Client("worker-0"), kAdmin),
              certificates_.Client("worker-0").certificate,
              "is for role worker, must be for admin");
  ExpectFault(CheckCertificates(certificates_.Client("wizard"), kAdmin),
              certificates_.Client("wizard").certificate, "unknown role 'wizard'");
  ExpectFault(CheckCertificates(certificates_.Client("shard"), {AllRoles(), false, true}),
              certificates_.Client("shard").certificate, "is not for callers");
  ExpectFault(CheckCertificates(good_, {AllRoles(), true, false}), good_.certificate,
              "is not for servers");
}

TEST_F(CertificateCheckTest, KnowsWhenACertificateIsGood) {
  ExpectFault(CheckCertificates(good_, kAdmin, InHours(48)), good_.ca, "expired on ");
  ExpectFault(CheckCertificates(good_, kAdmin, InHours(-48)), good_.ca, "is not valid before ");
  // The certificate is valid for a day, a third of which is less than 30 days.
  EXPECT_EQ(*CheckCertificates(good_, kAdmin, InHours(15)), "");
  EXPECT_THAT(*CheckCertificates(good_, kAdmin, InHours(20)),
              AllOf(HasSubstr("'" + good_.certificate + "' expires on "),
                    AnyOf(HasSubstr(", in 3h59m: "), HasSubstr(", in 4h: "))));
}

TEST_F(CertificateCheckTest, RefusesAKeyThatOthersMayReadOrWrite) {
  for (const mode_t mode : {0644, 0666, 0660, 0602}) {
    ASSERT_EQ(chmod(good_.private_key.c_str(), mode), 0);
    ExpectFault(CheckCertificates(good_, kAdmin), good_.private_key, "has mode 06");
  }
  ASSERT_EQ(chmod(good_.private_key.c_str(), 0400), 0);
  EXPECT_TRUE(CheckCertificates(good_, kAdmin).ok());
}

}  // namespace
}  // namespace kaon::client
