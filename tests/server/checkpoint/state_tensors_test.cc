#include "server/checkpoint/state_tensors.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"

namespace kaon::checkpoint {
namespace {

std::string Printed(const v1::RegisterBody& registration) {
  std::string all;
  const std::vector<StateTensor> tensors = StateTensorsOf(registration).value();
  for (const StateTensor& tensor : tensors) {
    absl::StrAppend(&all, tensor.parameter_id, " ", tensor.role, " ",
                    v1::StateDType_Name(tensor.dtype).substr(12), " ",
                    v1::MomentumForm_Name(tensor.momentum_form).substr(14), " ",
                    tensor.num_elements, "\n");
  }
  return all;
}

TEST(StateTensorsTest, FollowFromTheRegistration) {
  EXPECT_EQ(Printed(TinyRegistration()),
            "0 momentum_buffer INT8 EMA 96\n"
            "0 weight FLOAT32 UNSPECIFIED 96\n"
            "1 exp_avg FLOAT32 UNSPECIFIED 70\n"
            "1 exp_avg_sq FLOAT32 UNSPECIFIED 70\n"
            "1 max_exp_avg_sq FLOAT32 UNSPECIFIED 70\n"
            "1 weight FLOAT32 UNSPECIFIED 70\n"
            "2 momentum_buffer BFLOAT16 SUM 24\n"
            "2 weight FLOAT32 UNSPECIFIED 24\n"
            "3 weight FLOAT32 UNSPECIFIED 5\n");
  v1::RegisterBody sum = TinyRegistration();
  sum.mutable_definition()->mutable_groups(0)->mutable_muon()->set_momentum_form(
      v1::MOMENTUM_FORM_SUM);
  EXPECT_NE(Printed(sum).find("0 momentum_buffer INT8 SUM 96\n"), std::string::npos);
}

TEST(StateTensorsTest, RefusesAPlacementThatDoesNotFitTheJob) {
  v1::RegisterBody registration = TinyRegistration();
  registration.mutable_placement()->mutable_parameters(1)->set_group("none");
  EXPECT_EQ(StateTensorsOf(registration).status().message(),
            "parameter 'h.b' is placed in group 'none', which the job does not have");
  registration = TinyRegistration();
  registration.mutable_placement()->mutable_parameters(1)->set_parameter_id(7);
  EXPECT_EQ(StateTensorsOf(registration).status().message(),
            "placement 1 is of parameter_id 7, expecting 1");
  registration = TinyRegistration();
  registration.mutable_placement()->mutable_parameters()->RemoveLast();
  EXPECT_EQ(StateTensorsOf(registration).status().message(),
            "placement of 3 parameters, the job has 4");
  registration = TinyRegistration();
  registration.mutable_placement()->mutable_parameters(0)->mutable_layout()->set_kind(
      v1::MATRIX_LAYOUT_KIND_UNSPECIFIED);
  EXPECT_EQ(StateTensorsOf(registration).status().message(),
            "parameter 'h.w': layout kind -1 is unknown");
  EXPECT_FALSE(StateTensorsOf(v1::RegisterBody()).ok());
}

TEST(StateTensorsTest, NamesTensorsInFiles) {
  const v1::JobDefinition job = TinyRegistration().definition();
  v1::CheckpointTensor tensor;
  tensor.set_role("momentum_buffer");
  tensor.set_dtype(v1::STATE_DTYPE_INT8);
  tensor.set_num_elements(96);
  const Tensor whole = TensorInFile(job.parameters(0), tensor);
  EXPECT_EQ(whole, (Tensor{"momentum_buffer:h.w", TensorType::kUint8, {3 * 34}, 0, 0}));
  tensor.set_dtype(v1::STATE_DTYPE_BFLOAT16);
  EXPECT_EQ(TensorInFile(job.parameters(0), tensor).shape, (std::vector<uint64_t>{8, 12}));
  tensor.set_role("weight");
  tensor.set_dtype(v1::STATE_DTYPE_FLOAT32);
  tensor.set_first_element(32);
  tensor.set_num_elements(64);
  const Tensor part = TensorInFile(job.parameters(0), tensor);
  EXPECT_EQ(part, (Tensor{"weight[32,96]:h.w", TensorType::kFloat32, {64}, 0, 0}));
  EXPECT_EQ(Describe(job, 0, "weight"), "parameter 'h.w' 'weight'");
  EXPECT_EQ(Describe(job, 9, "x\n"), "parameter_id 9 'x\\n'");
}

}  // namespace
}  // namespace kaon::checkpoint
