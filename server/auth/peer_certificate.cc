#include "server/auth/peer_certificate.h"

#include <ctime>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/transport/openssl_types.h"

namespace kaon::auth {

namespace {

using client::BioOf;
using client::Certificate;
using client::ErrorMark;
using client::Names;

std::string UriOf(X509* certificate) {
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
  return uris.size() == 1 ? uris[0] : "";
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace

std::string DerOf(const X509_NAME* name) {
  const unsigned char* bytes = nullptr;
  size_t size = 0;
  if (X509_NAME_get0_der(name, &bytes, &size) != 1) return "";
  return std::string(reinterpret_cast<const char*>(bytes), size);
}

std::string SerialOf(const ASN1_INTEGER* serial) {
  std::string digits;
  for (int i = 0; i < serial->length; ++i) {
    absl::StrAppend(&digits, absl::Hex(serial->data[i], absl::kZeroPad2));
  }
  digits = absl::AsciiStrToUpper(digits);
  const size_t first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : digits.substr(first);
}

absl::StatusOr<PeerCertificate> ParseCertificate(absl::string_view pem) {
  const ErrorMark mark;
  const Certificate certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return absl::InvalidArgumentError("no PEM certificate");
  PeerCertificate parsed;
  parsed.uri = UriOf(certificate.get());
  parsed.issuer = DerOf(X509_get_issuer_name(certificate.get()));
  parsed.serial = SerialOf(X509_get0_serialNumber(certificate.get()));
  parsed.expires = TimeOf(X509_get0_notAfter(certificate.get()));
  return parsed;
}

}  // namespace kaon::auth
