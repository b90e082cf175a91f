#include "client/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace kaon::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainOptionsTest : public testing::Test {
 protected:
  TrainOptionsTest() {
    for (const char* name :
         {"KAON_ENDPOINTS", "KAON_TLS_DIR", "KAON_CA", "KAON_CERT", "KAON_KEY"}) {
      unsetenv(name);
    }
  }

  static ParsedCommandLine Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "kaon-train");
    return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  }
};

TEST_F(TrainOptionsTest, LocalRunNeedsNothingElse) {
  const ParsedCommandLine parsed = Parse({"--local"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_THAT(parsed.options->split, ElementsAre(1, 1));
  EXPECT_EQ(parsed.options->push_dtype, kernels::DType::kFloat32);
}

TEST_F(TrainOptionsTest, ReadsListsAndDTypes) {
  const ParsedCommandLine parsed = Parse({"--connect", "a:1,b:2", "--split", "3,5", "--push-dtype",
                                          "bfloat16", "--pull-dtype", "float16", "--rank", "1"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_THAT(parsed.options->coordinators, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(parsed.options->split, ElementsAre(3, 5));
  EXPECT_EQ(parsed.options->push_dtype, kernels::DType::kBFloat16);
  EXPECT_EQ(parsed.options->pull_dtype, kernels::DType::kFloat16);
  EXPECT_EQ(parsed.options->rank, 1u);
}

TEST_F(TrainOptionsTest, HelpExitsWithZero) {
  const ParsedCommandLine parsed = Parse({"--help"});
  EXPECT_FALSE(parsed.options.has_value());
  EXPECT_EQ(parsed.exit_status, 0);
  EXPECT_THAT(parsed.text, HasSubstr("--log-jsonl"));
  EXPECT_THAT(parsed.text, HasSubstr("newton_schulz_updates"));
}

kaon::JobDefinition JobOf(const TrainOptions& options) {
  ModelShape model = options.model;
  model.vocabulary = 80;
  return MakeJobDefinition(options, model);
}

// The flags for clipping ([C6]-[C8]) and for the norm mode ([N5]) set options of the job.
TEST_F(TrainOptionsTest, ClippingAndNormModeGoIntoTheJob) {
  const ParsedCommandLine parsed = Parse({"--local", "--clip-scope", "all", "--clip-floor", "0.25",
                                          "--muon-clip-policy", "clip", "--norm-mode", "add_eps"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  const kaon::JobDefinition job = JobOf(*parsed.options);
  EXPECT_EQ(job.clip_scope, kaon::ClipScope::kAll);
  EXPECT_EQ(job.clip_floor, 0.25);
  ASSERT_EQ(job.groups.size(), 2u);
  EXPECT_EQ(job.groups[0].rule, kaon::Rule::kMuon);
  EXPECT_EQ(job.groups[0].clip_policy, kaon::ClipPolicy::kClip);
  EXPECT_EQ(job.groups[0].muon.newton_schulz.norm_mode, kaon::NormMode::kAddEps);
  EXPECT_FALSE(job.groups[1].clip_policy.has_value());
}

TEST_F(TrainOptionsTest, SaysWhatIsDoneAboutLostWorkers) {
  const ParsedCommandLine parsed =
      Parse({"--connect", "a:1", "--worker-loss", "shrink", "--worker-loss-seconds", "5",
             "--step-seconds", "90"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(JobOf(*parsed.options).worker_loss, kaon::WorkerLoss::kShrink);
  EXPECT_EQ(JobOf(*parsed.options).worker_loss_seconds, 5);
  EXPECT_EQ(JobOf(*parsed.options).step_seconds, 90);
  const ParsedCommandLine local = Parse({"--local", "--absent", "1:3-5", "--absent", "1:9-9"});
  ASSERT_TRUE(local.options.has_value()) << local.text;
  ASSERT_EQ(local.options->absences.size(), 2u);
  EXPECT_EQ(local.options->absences[0].rank, 1u);
  EXPECT_EQ(local.options->absences[0].first_step, 3u);
  EXPECT_EQ(local.options->absences[0].last_step, 5u);
}

TEST_F(TrainOptionsTest, TakesATransport) {
  EXPECT_EQ(Parse({"--connect", "a:1", "--transport", "shm"}).options->transport,
            kaon::Transport::kShm);
  EXPECT_FALSE(Parse({"--connect", "a:1"}).options->transport.has_value());
  EXPECT_EQ(kaon::ClientOptions().transport, kaon::Transport::kAuto);
  EXPECT_EQ(Parse({"--connect", "a:1", "--transport", "tcp"}).exit_status, 2);
}

TEST_F(TrainOptionsTest, WithoutThoseFlagsTheJobsDefaultsHold) {
  const ParsedCommandLine parsed = Parse({"--local"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  const kaon::JobDefinition job = JobOf(*parsed.options);
  EXPECT_FALSE(job.clip_scope.has_value());
  EXPECT_FALSE(job.clip_floor.has_value());
  ASSERT_EQ(job.groups.size(), 2u);
  EXPECT_FALSE(job.groups[0].clip_policy.has_value());
  EXPECT_FALSE(job.groups[0].muon.newton_schulz.norm_mode.has_value());
}

TEST_F(TrainOptionsTest, EveryWordOfTheClippingFlagsIsTaken) {
  const auto options = [](const char* flag, const char* word) {
    const ParsedCommandLine parsed = Parse({"--local", flag, word});
    EXPECT_TRUE(parsed.options.has_value()) << parsed.text;
    return parsed.options.value_or(TrainOptions{});
  };
  EXPECT_EQ(options("--clip-scope", "live").clip_scope, kaon::ClipScope::kLive);
  EXPECT_EQ(options("--muon-clip-policy", "exempt").muon_clip_policy, kaon::ClipPolicy::kExempt);
  EXPECT_EQ(options("--norm-mode", "clamp_eps").norm_mode, kaon::NormMode::kClampEps);
  EXPECT_EQ(options("--norm-mode", "scale_invariant").norm_mode, kaon::NormMode::kScaleInvariant);
}

// Scope and floor belong to the job. The preset defines the groups and their options.
TEST_F(TrainOptionsTest, APresetTakesScopeAndFloor) {
  const ParsedCommandLine parsed =
      Parse({"--local", "--preset", "keller", "--clip-scope", "all", "--clip-floor", "0.25"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  const kaon::JobDefinition job = JobOf(*parsed.options);
  EXPECT_EQ(job.clip_scope, kaon::ClipScope::kAll);
  EXPECT_EQ(job.clip_floor, 0.25);
}

struct Refusal {
  std::vector<const char*> arguments;
  const char* named;
};

class TrainOptionsRefusalTest : public TrainOptionsTest,
                                public testing::WithParamInterface<Refusal> {};

TEST_P(TrainOptionsRefusalTest, NamesTheOption) {
  const ParsedCommandLine parsed = Parse(GetParam().arguments);
  EXPECT_FALSE(parsed.options.has_value());
  EXPECT_EQ(parsed.exit_status, 2);
  EXPECT_THAT(parsed.text, HasSubstr(GetParam().named));
}

struct WordRefusal {
  const char* flag;
  std::vector<const char*> words;
};

class TrainOptionsWordTest : public TrainOptionsTest,
                             public testing::WithParamInterface<WordRefusal> {};

TEST_P(TrainOptionsWordTest, IsNamedWithAllThatThereAre) {
  for (const char* wrong : {"none", "ADD_EPS", "1", ""}) {
    const ParsedCommandLine parsed = Parse({"--local", GetParam().flag, wrong});
    EXPECT_EQ(parsed.exit_status, 2) << wrong;
    EXPECT_THAT(parsed.text, HasSubstr(GetParam().flag));
    for (const char* word : GetParam().words) EXPECT_THAT(parsed.text, HasSubstr(word));
  }
}

TEST_P(TrainOptionsWordTest, IsInTheHelpWithAllThatThereAre) {
  const std::string help = Parse({"--help"}).text;
  const size_t flag = help.find(GetParam().flag);
  ASSERT_NE(flag, std::string::npos);
  for (const char* word : GetParam().words) EXPECT_NE(help.find(word, flag), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(UnknownWords, TrainOptionsWordTest,
                         testing::Values(WordRefusal{"--clip-scope", {"live", "all"}},
                                         WordRefusal{"--muon-clip-policy", {"clip", "exempt"}},
                                         WordRefusal{"--norm-mode",
                                                     {"scale_invariant", "add_eps", "clamp_eps"}}));

INSTANTIATE_TEST_SUITE_P(
    WrongCommandLines, TrainOptionsRefusalTest,
    testing::Values(Refusal{{}, "--connect"}, Refusal{{"--local", "--connect", "a:1"}, "--local"},
                    Refusal{{"--local", "--rank", "0"}, "--rank"},
                    Refusal{{"--connect", "a:1", "--rank", "2"}, "--rank is 2"},
                    Refusal{{"--local", "--split", "1,2,3"}, "--split has 3"},
                    Refusal{{"--local", "--steps", "0"}, "--steps"},
                    Refusal{{"--local", "--push-dtype", "float8"}, "--push-dtype"},
                    Refusal{{"--local", "--gemm", "blas"}, "--gemm"},
                    Refusal{{"--local", "--clip-floor", "1.5"}, "--clip-floor"},
                    Refusal{{"--local", "--clip-floor", "-0.1"}, "--clip-floor"},
                    Refusal{{"--local", "--clip-floor", "nan"}, "--clip-floor"},
                    Refusal{{"--local", "--clip-floor", "low"}, "--clip-floor"},
                    Refusal{{"--local", "--muon-lr", "nan"}, "--muon-lr"},
                    Refusal{{"--local", "--max-grad-norm", "inf"}, "--max-grad-norm"},
                    Refusal{{"--local", "--worker-loss-seconds", "nan"}, "--worker-loss-seconds"},
                    Refusal{{"--connect", "a:1", "--rank", " 0"}, "--rank"},
                    Refusal{{"--local", "--split", "1, 2"}, "--split"},
                    Refusal{{"--local", "--seed", "0x1"}, "--seed"},
                    Refusal{{"--local", "--preset", "keller", "--norm-mode", "add_eps"},
                            "--norm-mode"},
                    Refusal{{"--local", "--preset", "keller", "--muon-clip-policy", "clip"},
                            "--muon-clip-policy"},
                    Refusal{{"--local", "--worker-loss", "retry"}, "--worker-loss"},
                    Refusal{{"--local", "--absent", "1:5"}, "RANK:FIRST-LAST"},
                    Refusal{{"--local", "--absent", "1:9-5"}, "RANK:FIRST-LAST"},
                    Refusal{{"--local", "--absent", "2:1-5"}, "rank 2, must be 1 .. 1"},
                    Refusal{{"--local", "--absent", "0:1-5"}, "rank 0, must be 1 .. 1"},
                    Refusal{{"--connect", "a:1", "--absent", "1:1-5"}, "--absent needs --local"},
                    Refusal{{"--local", "--colour"}, "--colour"}));

TEST_F(TrainOptionsTest, TakesCoordinatorsAndCertificatesFromTheEnvironment) {
  setenv("KAON_ENDPOINTS", "a:1,b:2", 1);
  setenv("KAON_TLS_DIR", "/tls", 1);
  const ParsedCommandLine parsed = Parse({});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_THAT(parsed.options->coordinators, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(parsed.options->tls_dir, "/tls");
}

TEST_F(TrainOptionsTest, FlagsBeatTheEnvironment) {
  setenv("KAON_ENDPOINTS", "a:1", 1);
  setenv("KAON_CERT", "/env.crt", 1);
  const ParsedCommandLine parsed = Parse({"--connect", "c:3", "--tls-dir", "/tls"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_THAT(parsed.options->coordinators, ElementsAre("c:3"));
  EXPECT_EQ(TlsFilesOf(*parsed.options, 0).certificate, "/tls/worker-0.crt");
  EXPECT_TRUE(Parse({"--local"}).options.has_value());
}

TEST(TlsFilesOfTest, FindsEachRanksCertificate) {
  TrainOptions options;
  options.tls_dir = "/tls";
  options.tls.private_key = "/elsewhere.key";
  const kaon::TlsFiles files = TlsFilesOf(options, 3);
  EXPECT_EQ(files.ca, "/tls/ca.crt");
  EXPECT_EQ(files.certificate, "/tls/worker-3.crt");
  EXPECT_EQ(files.private_key, "/elsewhere.key");
}

TEST(TlsFilesOfTest, TakesTheCertificateForAnyRankOnlyIfARankHasNone) {
  TrainOptions options;
  options.tls_dir = ::testing::TempDir();
  for (const char* name : {"/worker.crt", "/worker-1.crt"}) {
    std::ofstream(options.tls_dir + name) << "certificate";
  }
  EXPECT_EQ(TlsFilesOf(options, 0).certificate, options.tls_dir + "/worker.crt");
  EXPECT_EQ(TlsFilesOf(options, 0).private_key, options.tls_dir + "/worker.key");
  EXPECT_EQ(TlsFilesOf(options, 1).certificate, options.tls_dir + "/worker-1.crt");
}

TEST(MakeJobDefinitionTest, ClipsAndGivesEachGroupItsOwnRate) {
  TrainOptions options;
  options.muon_lr = 0.5;
  options.adamw_lr = 0.25;
  ModelShape model = options.model;
  model.vocabulary = 80;
  const kaon::JobDefinition job = MakeJobDefinition(options, model);
  EXPECT_EQ(job.max_grad_norm, 0.5);
  ASSERT_EQ(job.groups.size(), 2u);
  EXPECT_EQ(job.groups[0].lr, 0.5);
  EXPECT_EQ(job.groups[1].lr, 0.25);
  EXPECT_EQ(job.parameters.size(), ModelParameters(model).size());
}

TEST_F(TrainOptionsTest, MultipliesTheRateOfGroups) {
  const ParsedCommandLine factors =
      Parse({"--local", "--group-multiplier", "muon=0.5", "--group-multiplier", "adamw=0"});
  ASSERT_TRUE(factors.options.has_value()) << factors.text;
  EXPECT_EQ(factors.options->group_multipliers,
            (std::map<std::string, double>{{"muon", 0.5}, {"adamw", 0}}));
  EXPECT_THAT(Parse({"--local", "--group-multiplier", "muon"}).text,
              HasSubstr("must be GROUP=FACTOR"));
}

TEST_F(TrainOptionsTest, ScalesTheGradientOfAParameterOfTheModel) {
  const ParsedCommandLine parsed = Parse({"--local", "--scale-gradient", "block1.weight=1e9"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->scale_gradient.parameter, "block1.weight");
  EXPECT_EQ(parsed.options->scale_gradient.factor, 1e9);
  for (const char* wrong : {"block1.weight", "block1.weight=much", "block1.weight=inf", "no=2"}) {
    const ParsedCommandLine refused = Parse({"--local", "--scale-gradient", wrong});
    EXPECT_EQ(refused.exit_status, 2) << wrong;
    EXPECT_THAT(refused.text, HasSubstr("--scale-gradient")) << wrong;
  }
}

TEST(MakeJobDefinitionTest, APresetReplacesGroupsAndLimit) {
  TrainOptions options;
  options.preset = "keller";
  ModelShape model = options.model;
  model.vocabulary = 80;
  const kaon::JobDefinition job = MakeJobDefinition(options, model);
  EXPECT_EQ(job.preset, "keller");
  EXPECT_TRUE(job.groups.empty());
  EXPECT_FALSE(job.max_grad_norm.has_value());
  EXPECT_EQ(job.parameters.size(), ModelParameters(model).size());
}

}  // namespace
}  // namespace kaon::train
