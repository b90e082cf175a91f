#include "server/admin_cli/backend_report.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

v1::ParameterRow Row(const std::string& group, uint32_t shard, const std::string& blocks) {
  v1::ParameterRow row = Parse<v1::ParameterRow>(blocks);
  row.mutable_placement()->set_group(group);
  row.mutable_placement()->set_shard(shard);
  return row;
}

// A group in Gram form with wide, square and small matrices, and one in standard form.
BackendFacts Facts() {
  BackendFacts facts;
  facts.status = Parse<v1::GetStatusResponse>(R"(
    job: "run"
    shards { shard: 0 address: "h:1" connected: true
             description { backend: "cpu/amx" instruction_set: "avx512" compute_threads: 8
                           device_class: "Xeon" build: "kaon 1" memory_tier: "cpu"
                           capacity_bytes: 4096 } }
    shards { shard: 1 address: "h:2" connected: true
             description { backend: "cuda" memory_tier: "cuda:0" capacity_bytes: 16384
                           product_forms { dtype: "bfloat16" n: 1024 k: 4096 batch: 1
                                           form: "wgmma" }
                           product_forms { dtype: "bfloat16" n: 512 k: 512 batch: 64
                                           form: "dense" } } }
    shards { shard: 2 address: "h:3" })");
  facts.job = Parse<v1::JobDescription>(R"(
    definition {
      groups { name: "muon" rule: RULE_MUON muon { ns_steps: 5
        ns_dtype: NEWTON_SCHULZ_DTYPE_BFLOAT16 newton_schulz {
          form: NEWTON_SCHULZ_FORM_GRAM gram_restarts: 2 gram_restarts: 3 } } }
      groups { name: "plain" rule: RULE_MUON muon { ns_steps: 7
        ns_dtype: NEWTON_SCHULZ_DTYPE_FLOAT32 newton_schulz {
          form: NEWTON_SCHULZ_FORM_STANDARD } } }
      groups { name: "adamw" rule: RULE_ADAMW } })");
  facts.parameters = {Row("muon", 0, "blocks { rows: 1024 cols: 4096 count: 1 }"),
                      Row("muon", 1, "blocks { rows: 1024 cols: 4096 count: 3 }"),
                      Row("muon", 0, "blocks { rows: 2048 cols: 2048 count: 1 }"),
                      Row("muon", 1, "blocks { rows: 512 cols: 512 count: 64 }"),
                      Row("muon", 1, "blocks { rows: 512 cols: 512 count: 1 }"),
                      Row("plain", 0, "blocks { rows: 64 cols: 8 count: 2 }"),
                      Row("adamw", 0, "")};
  return facts;
}

TEST(BackendReportTest, SaysWhatEachShardComputesWith) {
  const Json json = BackendJson(Facts());
  EXPECT_EQ(json["job"], "run");
  EXPECT_EQ(json["shards"].dump(),
            R"([{"shard":0,"address":"h:1","connected":true,"backend":"cpu","gemm":"amx",)"
            R"("isa":"avx512","threads":8,"device_class":"Xeon","memory_tier":"cpu",)"
            R"("capacity_bytes":4096,"build":"kaon 1"},)"
            R"({"shard":1,"address":"h:2","connected":true,"backend":"cuda","gemm":"",)"
            R"("isa":"","threads":0,"device_class":"","memory_tier":"cuda:0",)"
            R"("capacity_bytes":16384,"build":""},)"
            R"({"shard":2,"address":"h:3","connected":false,"backend":"","gemm":"",)"
            R"("isa":"","threads":null,"device_class":"","memory_tier":"",)"
            R"("capacity_bytes":null,"build":""}])");
}

TEST(BackendReportTest, TextHasOneLinePerShardAndPerKindOfMatrix) {
  EXPECT_EQ(BackendText(Facts()),
            "SHARD  ADDRESS  CONNECTED  BACKEND  GEMM  ISA     THREADS  MEMORY  CAPACITY  "
            "DEVICE  BUILD\n"
            "    0  h:1      yes        cpu      amx   avx512        8  cpu      4.0 KiB  "
            "Xeon    kaon 1\n"
            "    1  h:2      yes        cuda     -     -             0  cuda:0  16.0 KiB  "
            "-       -\n"
            "    2  h:3      no         -        -     -             -  -              -  "
            "-       -\n"
            "\n"
            "GROUP  ROWS  COLS  FORM      RESTARTS  DTYPE     STEPS  BATCHED  MATRICES  "
            "PARAMETERS  SHARDS\n"
            "muon    512   512  standard  -         bfloat16      5  no              1  "
            "         1  1\n"
            "muon    512   512  standard  -         bfloat16      5  yes            64  "
            "         1  1\n"
            "muon   1024  4096  gram      2,3       bfloat16      5  no              4  "
            "         2  0,1\n"
            "muon   2048  2048  standard  -         bfloat16      5  no              1  "
            "         1  0\n"
            "plain    64     8  standard  -         float32       7  yes             2  "
            "         1  0\n"
            "\n"
            "SHARD  DTYPE        N     K  BATCH  PRODUCT\n"
            "    1  bfloat16  1024  4096      1  wgmma\n"
            "    1  bfloat16   512   512     64  dense\n");
}

TEST(BackendReportTest, AShardWithoutChoicesHasNoTableOfThem) {
  BackendFacts facts = Facts();
  facts.status.mutable_shards(1)->mutable_description()->clear_product_forms();
  EXPECT_THAT(BackendText(facts), Not(HasSubstr("PRODUCT")));
}

// Element-wise rules have no matrices.
TEST(BackendReportTest, AJobWithoutMuonHasNoForms) {
  BackendFacts facts = Facts();
  facts.parameters = {Row("adamw", 0, "")};
  EXPECT_TRUE(BackendJson(facts)["matrices"].empty());
}

TEST(BackendReportTest, JsonHasTheDocumentedKeysOfMatrices) {
  EXPECT_THAT(BackendJson(Facts())["matrices"].dump(),
              HasSubstr(R"({"group":"muon","rows":1024,"cols":4096,"parameters":2,"matrices":4,)"
                        R"("shards":[0,1],"form":"gram","restarts":[2,3],)"
                        R"("dtype":"bfloat16","steps":5,"batched":false})"));
}

}  // namespace
}  // namespace kaon::admin_cli
