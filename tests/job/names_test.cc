#include "job/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kaon/v1/parameters.pb.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The value's number, or the message.
template <typename Enum>
std::string Parsed(absl::string_view word) {
  const absl::StatusOr<Enum> value = ParseName<Enum>("field", word);
  if (value.ok()) return std::to_string(*value);
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(NamesTest, NamesAreTheEnumeratorsWithoutTheirPrefix) {
  EXPECT_EQ(NameOf(v1::RULE_ADAMW), "adamw");
  EXPECT_EQ(NameOf(v1::NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS_5_S102), "polar_express_5_s102");
  EXPECT_EQ(NameOf(v1::UPDATE_SCALE_MATCH_RMS_ADAMW), "match_rms_adamw");
  EXPECT_EQ(NameOf(v1::STATE_DTYPE_INT8), "int8");
  EXPECT_EQ(NameOf(v1::DTYPE_BFLOAT16), "bfloat16");
  EXPECT_EQ(NameOf(v1::RULE_UNSPECIFIED), "unset");
  EXPECT_EQ(NameOf(static_cast<v1::Rule>(77)), "77");
}

TEST(NamesTest, ListsAllButTheUnspecifiedOne) {
  EXPECT_THAT(NamesOf(*v1::Rule_descriptor()), ElementsAre("muon", "adamw", "sgd", "lion"));
  EXPECT_THAT(NamesOf(*v1::DecayMode_descriptor()),
              ElementsAre("decoupled", "independent", "l2", "palm"));
}

TEST(NamesTest, EveryNameOfEveryTypeParsesToItsOwnEnumerator) {
  const google::protobuf::FileDescriptor* file = v1::Rule_descriptor()->file();
  ASSERT_GT(file->enum_type_count(), 10);
  for (int i = 0; i < file->enum_type_count(); ++i) {
    const google::protobuf::EnumDescriptor& type = *file->enum_type(i);
    for (const std::string& name : NamesOf(type)) {
      const absl::StatusOr<int> value = ParseName(type, "field", name);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(NameOf(type, *value), name);
    }
  }
}

TEST(NamesTest, RefusesAnUnknownWordListingThoseThereAre) {
  EXPECT_EQ(Parsed<v1::MomentumForm>("ewma"), "field is \"ewma\", must be one of ema, sum");
  EXPECT_THAT(Parsed<v1::Rule>("unset"), HasSubstr("must be one of muon, adamw, sgd, lion"));
  EXPECT_THAT(Parsed<v1::Rule>("Muon"), HasSubstr("must be one of"));
  EXPECT_THAT(Parsed<v1::Rule>(""), HasSubstr("field is \"\""));
}

// numerics.md section 0.
TEST(NamesTest, RefusesAmbiguousWordsWithTheNamesTheyMayStandFor) {
  EXPECT_THAT(Parsed<v1::NewtonSchulzCoefficients>("quintic"),
              AllOf(HasSubstr("you to some"), HasSubstr("jordan to others")));
  for (const char* word : {"spectral", "spectral_norm"}) {
    EXPECT_THAT(Parsed<v1::UpdateScale>(word),
                AllOf(HasSubstr(word), HasSubstr("max_dim"), HasSubstr("unit_rms_norm")));
  }
  // Kaon does not offer the aol set ([N2]).
  EXPECT_THAT(Parsed<v1::NewtonSchulzCoefficients>("aol"), HasSubstr("not offered"));
}

TEST(NamesTest, NumbersAreShortAndExact) {
  EXPECT_EQ(NumberText(0.1), "0.1");
  EXPECT_EQ(NumberText(1), "1");
  EXPECT_EQ(NumberText(1e-7), "1e-07");
  EXPECT_NE(NumberText(0.1), NumberText(0.1 + 1e-16));
}

}  // namespace
}  // namespace kaon::job
