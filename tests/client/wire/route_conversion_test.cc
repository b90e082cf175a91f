#include "client/wire/route_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "job/resolve.h"

namespace kaon::client {
namespace {

v1::ParameterSpec& Add(v1::JobDefinition& job, const std::string& name,
                       const std::vector<uint64_t>& shape) {
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name(name);
  for (const uint64_t dimension : shape) parameter.add_shape(dimension);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  return parameter;
}

// A job as a coordinator describes it.
v1::JobDescription Described() {
  v1::JobDefinition job;
  job.set_name("small");
  job.set_world_size(1);
  job.set_preset("keller");
  Add(job, "h.weight", {4, 1}).set_transposed(true);
  v1::MatrixLayout& layout = *Add(job, "qkv.weight", {6, 2}).mutable_layout();
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_ROWS);
  for (const uint64_t rows : {1, 1, 4}) layout.add_sizes(rows);
  Add(job, "h.bias", {6});
  Add(job, "copy.bias", {6}).set_tied_to("h.bias");
  Add(job, "base.weight", {4, 4}).set_frozen(true);
  v1::RegisterBody body = *job::Resolve(job);
  v1::JobDescription description;
  *description.mutable_definition() = std::move(*body.mutable_definition());
  *description.mutable_placement() = std::move(*body.mutable_placement());
  for (v1::ParameterPlacement& placement : *description.mutable_placement()->mutable_parameters()) {
    placement.set_shard(placement.parameter_id() % 2);
  }
  return description;
}

// `kaonctl parameters` shows the same.
TEST(RouteConversionTest, ARouteSaysHowItsParameterIsSteppedAndClipped) {
  const std::vector<kaon::ParameterRoute> routes = RoutesFromProto(Described());
  ASSERT_EQ(routes.size(), 5u);
  EXPECT_EQ(routes[0].group, "matrices");
  EXPECT_EQ(routes[1].shard, 1u);
  EXPECT_TRUE(routes[0].counted);
  EXPECT_TRUE(routes[0].clip_exempt);
  EXPECT_TRUE(routes[0].transposed);
  // [S1], [L1]: sqrt(max(1, out / in)) of a matrix that is stored as (in, out).
  ASSERT_EQ(routes[0].blocks.size(), 1u);
  EXPECT_EQ(routes[0].blocks[0].rows, 4u);
  EXPECT_EQ(routes[0].blocks[0].cols, 1u);
  EXPECT_EQ(routes[0].blocks[0].count, 1u);
  EXPECT_EQ(routes[0].blocks[0].scale, 1);

  EXPECT_FALSE(routes[1].transposed);
  ASSERT_EQ(routes[1].blocks.size(), 2u);
  EXPECT_EQ(routes[1].blocks[0].count, 2u);
  EXPECT_EQ(routes[1].blocks[1].rows, 4u);
  EXPECT_DOUBLE_EQ(routes[1].blocks[1].scale, std::sqrt(2));

  EXPECT_FALSE(routes[2].clip_exempt);
  EXPECT_TRUE(routes[2].counted);
  EXPECT_TRUE(routes[2].blocks.empty());
  // The copy is not counted in norms ([C2]), and the frozen parameter has no group ([T8]).
  EXPECT_FALSE(routes[3].counted);
  EXPECT_EQ(routes[4].reason, "frozen");
  EXPECT_FALSE(routes[4].counted);
  EXPECT_FALSE(routes[4].clip_exempt);
  EXPECT_TRUE(routes[4].blocks.empty());
}

TEST(RouteConversionTest, PlacesRoutesByParameterId) {
  v1::JobDescription description = Described();
  v1::Placement& placement = *description.mutable_placement();
  placement.mutable_parameters()->DeleteSubrange(0, 4);
  placement.mutable_parameters(0)->set_parameter_id(2);
  placement.mutable_parameters(0)->set_group("scalars");
  // No parameter has this id.
  placement.add_parameters()->set_parameter_id(5);
  const std::vector<kaon::ParameterRoute> routes = RoutesFromProto(description);
  ASSERT_EQ(routes.size(), 5u);
  EXPECT_EQ(routes[2].group, "scalars");
  EXPECT_EQ(routes[0].group, "");
  EXPECT_EQ(routes[4].group, "");
}

TEST(RouteConversionTest, RoundTripsALayout) {
  const kaon::MatrixLayout layout{MatrixLayoutKind::kQkvInterleaved, {2, 1, 1}, 3};
  const kaon::MatrixLayout back = LayoutFromProto(LayoutToProto(layout));
  EXPECT_EQ(back.kind, layout.kind);
  EXPECT_EQ(back.sizes, layout.sizes);
  EXPECT_EQ(back.num_heads, layout.num_heads);
}

}  // namespace
}  // namespace kaon::client
