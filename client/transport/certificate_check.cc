#include "client/transport/certificate_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/transport/certificate_files.h"
#include "client/transport/openssl_types.h"
#include "proto/status_macros.h"

namespace kaon::client {

namespace {

constexpr absl::Duration kWarnBefore = absl::Hours(24 * 30);

using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using Verification = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;
using Time = std::unique_ptr<ASN1_TIME, Free<ASN1_TIME_free>>;

absl::Status Fault(absl::string_view file, const std::string& path, absl::string_view fault) {
  return absl::FailedPreconditionError(absl::StrCat("tls ", file, " file '", path, "' ", fault));
}

absl::StatusOr<Bio> Open(absl::string_view what, const std::string& path, std::string& text) {
  KAON_RETURN_IF_ERROR(CheckReadable(what, path));
  std::ostringstream contents;
  contents << std::ifstream(path).rdbuf();
  text = contents.str();
  return BioOf(text);
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(absl::string_view what,
                                                          const std::string& path) {
  std::string text;
  KAON_ASSIGN_OR_RETURN(const Bio bio, Open(what, path, text));
  std::vector<Certificate> certificates;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(next);
  }
  // After the last certificate OpenSSL finds no start line. Any other error means damage.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (certificates.empty()) return Fault(what, path, "holds no PEM certificate");
  if (!at_end) {
    return Fault(what, path,
                 absl::StrCat("is damaged behind certificate ", certificates.size(), " of it"));
  }
  return certificates;
}

// There is nobody to ask for the password of a key.
int NoPassword(char*, int, int, void*) { return -1; }

// Same rule as PostgreSQL. If root owns the key, a group may read it: so root can mount a key for a
// process of another user.
absl::Status CheckKeyMode(const std::string& path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) return absl::OkStatus();
  const mode_t allowed = facts.st_uid == 0 ? 0740 : 0700;
  if ((facts.st_mode & 0777 & ~allowed) == 0) return absl::OkStatus();
  return Fault("private key", path,
               absl::StrFormat("has mode %04o, must be 0600, or 0640 if root owns it: others could "
                               "act as its owner",
                               facts.st_mode & 07777));
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  std::string text;
  KAON_ASSIGN_OR_RETURN(const Bio bio, Open("private key", path, text));
  KAON_RETURN_IF_ERROR(CheckKeyMode(path));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) return Fault("private key", path, "holds no PEM key without a password");
  return key;
}

std::string TextOf(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, size);
}

std::string FaultOf(X509_STORE_CTX* verification, const std::string& ca_path) {
  const X509* const which = X509_STORE_CTX_get_current_cert(verification);
  const int error = X509_STORE_CTX_get_error(verification);
  if (error == X509_V_ERR_CERT_HAS_EXPIRED) {
    return absl::StrCat("expired on ", TextOf(X509_get0_notAfter(which)));
  }
  if (error == X509_V_ERR_CERT_NOT_YET_VALID) {
    return absl::StrCat("is not valid before ", TextOf(X509_get0_notBefore(which)));
  }
  return absl::StrCat("is not good for ca file '", ca_path,
                      "': ", X509_verify_cert_error_string(error));
}

// Checks that the CA signed the first certificate of `chain` and that no certificate is expired.
// The CA may sign it through another CA in the file.
absl::Status CheckChain(const kaon::TlsFiles& files, const std::vector<Certificate>& cas,
                        const std::vector<Certificate>& chain, std::optional<absl::Time> at) {
  const Store store(X509_STORE_new());
  for (const Certificate& ca : cas) X509_STORE_add_cert(store.get(), ca.get());
  STACK_OF(X509)* const others = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others, chain[i].get());
  const Verification verification(X509_STORE_CTX_new());
  X509_STORE_CTX_init(verification.get(), store.get(), chain[0].get(), others);
  X509_VERIFY_PARAM* const parameters = X509_STORE_CTX_get0_param(verification.get());
  // gRPC sets the same flags.
  X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  if (at.has_value()) X509_VERIFY_PARAM_set_time(parameters, absl::ToTimeT(*at));
  const bool good = X509_verify_cert(verification.get()) == 1;
  sk_X509_free(others);
  if (good) return absl::OkStatus();
  const X509* const which = X509_STORE_CTX_get_current_cert(verification.get());
  const bool in_chain =
      std::any_of(chain.begin(), chain.end(), [which](const Certificate& certificate) {
        return which == nullptr || X509_cmp(certificate.get(), which) == 0;
      });
  return Fault(in_chain ? "certificate" : "ca", in_chain ? files.certificate : files.ca,
               FaultOf(verification.get(), files.ca));
}

absl::StatusOr<proto::Identity> IdentityOf(const std::string& path, X509* certificate) {
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      ASN1_STRING_length(uri));
  }
  if (uris.size() != 1) {
    return Fault("certificate", path, absl::StrCat("has ", uris.size(), " URI names, must have 1"));
  }
  absl::StatusOr<proto::Identity> identity = proto::ParseIdentity(uris[0]);
  if (identity.ok()) return identity;
  return Fault("certificate", path, absl::StrCat("names no role: ", identity.status().message()));
}

absl::Status CheckUse(const std::string& path, X509* certificate, const CertificateUse& use) {
  KAON_ASSIGN_OR_RETURN(const proto::Identity identity, IdentityOf(path, certificate));
  if (std::find(use.roles.begin(), use.roles.end(), identity.role) == use.roles.end()) {
    const auto append = [](std::string* out, proto::Role role) {
      absl::StrAppend(out, proto::NameOf(role));
    };
    return Fault("certificate", path,
                 absl::StrCat("is for role ", proto::NameOf(identity.role), ", must be for ",
                              absl::StrJoin(use.roles, " or ", append)));
  }
  if (use.serves && X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return Fault("certificate", path, "is not for servers, needs extendedKeyUsage serverAuth");
  }
  if (use.calls && X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) != 1) {
    return Fault("certificate", path, "is not for callers, needs extendedKeyUsage clientAuth");
  }
  return absl::OkStatus();
}

absl::Duration Between(const ASN1_TIME* from, const ASN1_TIME* to) {
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, from, to) != 1) return absl::InfiniteDuration();
  return absl::Hours(24) * days + absl::Seconds(seconds);
}

// Also compares the remaining time with the certificate's life: a certificate for one day is
// renewed within the day.
std::string ExpiryWarning(const std::string& path, const X509* certificate,
                          std::optional<absl::Time> at) {
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  const absl::Duration life = Between(X509_get0_notBefore(certificate), end);
  const Time now(at.has_value() ? ASN1_TIME_set(nullptr, absl::ToTimeT(*at)) : nullptr);
  // Null means the present time.
  const absl::Duration left = Between(now.get(), end);
  if (left >= std::min(kWarnBefore, life / 3)) return "";
  return absl::StrCat("tls certificate file '", path, "' expires on ", TextOf(end), ", in ",
                      absl::FormatDuration(absl::Trunc(left, absl::Minutes(1))),
                      ": replace it, it is read again within seconds");
}

}  // namespace

std::vector<proto::Role> AllRoles() { return {std::begin(proto::kRoles), std::end(proto::kRoles)}; }

absl::StatusOr<std::string> CheckCertificates(const kaon::TlsFiles& files,
                                              const CertificateUse& use,
                                              std::optional<absl::Time> at) {
  KAON_ASSIGN_OR_RETURN(const bool named, AreNamed(files));
  if (!named) return "";
  const ErrorMark mark;
  KAON_ASSIGN_OR_RETURN(const std::vector<Certificate> cas, ReadCertificates("ca", files.ca));
  KAON_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                        ReadCertificates("certificate", files.certificate));
  KAON_ASSIGN_OR_RETURN(const Key key, ReadKey(files.private_key));
  X509* const certificate = chain[0].get();
  if (X509_check_private_key(certificate, key.get()) != 1) {
    return Fault("private key", files.private_key,
                 absl::StrCat("is not the key of certificate file '", files.certificate, "'"));
  }
  KAON_RETURN_IF_ERROR(CheckChain(files, cas, chain, at));
  KAON_RETURN_IF_ERROR(CheckUse(files.certificate, certificate, use));
  return ExpiryWarning(files.certificate, certificate, at);
}

absl::StatusOr<std::string> TrustDomain(const std::string& certificate_file) {
  const ErrorMark mark;
  KAON_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                        ReadCertificates("certificate", certificate_file));
  const absl::StatusOr<proto::Identity> identity = IdentityOf(certificate_file, chain[0].get());
  return identity.ok() ? identity->domain : "";
}

}  // namespace kaon::client
