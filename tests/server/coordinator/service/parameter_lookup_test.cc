#include "server/coordinator/service/parameter_lookup.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::coordinator {
namespace {

v1::JobDescription Job() {
  v1::JobDescription job;
  job.mutable_definition()->set_name("tiny");
  for (const char* name : {"wte", "h.0.attn.weight", "H.0.ATTN.weight"}) {
    v1::ParameterPlacement* row = job.mutable_placement()->add_parameters();
    row->set_parameter_id(job.definition().parameters_size());
    row->set_shard(7);
    job.mutable_definition()->add_parameters()->set_name(name);
  }
  return job;
}

std::string Refusal(absl::string_view name) {
  const absl::Status status = FindParameter(Job(), name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  return std::string(status.message());
}

TEST(ParameterLookupTest, FindsTheParameterOfExactlyThatName) {
  EXPECT_EQ(FindParameter(Job(), "H.0.ATTN.weight")->parameter_id(), 2u);
  EXPECT_EQ(FindParameter(Job(), "wte")->shard(), 7u);
}

TEST(ParameterLookupTest, NamesWhatMayHaveBeenMeant) {
  EXPECT_EQ(Refusal("WTE"), "parameter \"WTE\" is none of job \"tiny\"; did you mean \"wte\"?");
  EXPECT_EQ(Refusal("h.0.at"),
            "parameter \"h.0.at\" is none of job \"tiny\"; did you mean \"h.0.attn.weight\"?");
  EXPECT_EQ(Refusal("wte.weight"),
            "parameter \"wte.weight\" is none of job \"tiny\"; did you mean \"wte\"?");
  EXPECT_EQ(Refusal("lm_head"), "parameter \"lm_head\" is none of job \"tiny\"");
}

TEST(ParameterLookupTest, NeedsAName) {
  const absl::Status status = FindParameter(Job(), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "parameter is empty, must be the name of a parameter");
}

}  // namespace
}  // namespace kaon::coordinator
