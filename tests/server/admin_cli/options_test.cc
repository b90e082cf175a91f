#include "server/admin_cli/options.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

namespace kaon::admin_cli {
namespace {

ParsedCommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kaonctl");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

std::string DirectoryWithPort(const std::string& text) {
  std::string pattern = ::testing::TempDir() + "/cluster.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  std::ofstream(pattern + "/coordinator.port") << text;
  return pattern;
}

TEST(OptionsTest, KnowsEveryCommand) {
  const std::pair<std::vector<const char*>, Command> lines[] = {
      {{"status"}, Command::kStatus},
      {{"status", "--events"}, Command::kStatusEvents},
      {{"job", "show"}, Command::kJobShow},
      {{"parameters"}, Command::kParameters},
      {{"steps"}, Command::kSteps},
      {{"digest"}, Command::kDigest},
      {{"backend"}, Command::kBackend},
      {{"health"}, Command::kHealth},
      {{"job", "show", "--effective"}, Command::kJobEffective},
      {{"steps", "--phases"}, Command::kStepPhases},
      {{"steps", "--follow"}, Command::kStepsFollow},
      {{"events"}, Command::kStatusEvents},
      {{"events", "--watch"}, Command::kEventsWatch},
      {{"top"}, Command::kTop},
      {{"worker", "list"}, Command::kWorkerList},
      {{"checkpoint", "delete", "a"}, Command::kCheckpointDelete},
      {{"shard", "drain", "1"}, Command::kShardDrain},
      {{"log", "set", "debug"}, Command::kLogSet},
      {{"config"}, Command::kConfig},
  };
  for (auto [words, command] : lines) {
    words.insert(words.end(), {"--endpoints", "127.0.0.1:1"});
    const ParsedCommandLine parsed = Parse(words);
    ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
    EXPECT_EQ(parsed.options->command, command) << words[0];
  }
}

// The step, the snapshot and the restart of a large shard take long.
TEST(OptionsTest, ADrainHasMoreTime) {
  const std::vector<const char*> drain = {"shard", "drain", "1", "--wait", "--endpoints", "a:1"};
  const ParsedCommandLine parsed = Parse(drain);
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->shard_index, 1u);
  EXPECT_TRUE(parsed.options->wait);
  EXPECT_EQ(parsed.options->timeout_seconds, 600);
  EXPECT_EQ(Parse({"shard", "drain", "1", "--timeout", "5", "--endpoints", "a:1"})
                .options->timeout_seconds,
            5);
  EXPECT_EQ(Parse({"status", "--endpoints", "a:1"}).options->timeout_seconds, 10);
  EXPECT_EQ(Parse({"shard", "drain", "--endpoints", "a:1"}).exit_status, 2);
  EXPECT_EQ(Parse({"shard", "drain", "-1", "--endpoints", "a:1"}).exit_status, 2);
}

TEST(OptionsTest, LiveCommandsHaveAnIntervalAndAnEnd) {
  const auto parse = [](std::vector<const char*> words) {
    words.insert(words.end(), {"--endpoints", "a:1"});
    return Parse(words);
  };
  EXPECT_EQ(parse({"events", "--watch"}).options->interval_seconds, 1);
  EXPECT_EQ(parse({"events", "--watch=5"}).options->interval_seconds, 5);
  EXPECT_EQ(parse({"top"}).options->interval_seconds, 2);
  EXPECT_EQ(parse({"top"}).options->frames, 0u);
  EXPECT_EQ(parse({"top", "--once"}).options->frames, 1u);
  EXPECT_EQ(parse({"top", "-n", "3", "--interval", "0.5"}).options->frames, 3u);
  // Answers of two loops would mix.
  EXPECT_EQ(parse({"--watch", "2", "top"}).exit_status, 2);
  EXPECT_EQ(parse({"--watch", "2", "steps", "--follow"}).exit_status, 2);
  EXPECT_EQ(parse({"top", "-n", "0"}).exit_status, 2);
  EXPECT_EQ(parse({"events", "--watch=0"}).exit_status, 2);
}

TEST(OptionsTest, ALogLevelIsOneOfFour) {
  EXPECT_EQ(Parse({"log", "set", "error", "--endpoints", "a:1"}).options->log_level, "error");
  EXPECT_EQ(Parse({"log", "set", "loud", "--endpoints", "a:1"}).exit_status, 2);
  EXPECT_EQ(Parse({"log", "set", "--endpoints", "a:1"}).exit_status, 2);
  EXPECT_EQ(Parse({"log", "set", "debug", "--shard", "a:1"}).options->shard, "a:1");
}

TEST(OptionsTest, VerifiesNumericsWithoutACluster) {
  const ParsedCommandLine parsed = Parse({"verify-numerics", "--gemm", "reference", "-o", "json"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->command, Command::kVerifyNumerics);
  EXPECT_EQ(parsed.options->backend, "cpu");
  EXPECT_EQ(parsed.options->gemm, "reference");
  EXPECT_EQ(parsed.options->isa, "widest");
  EXPECT_EQ(Parse({"verify-numerics", "--gemm", "other"}).exit_status, 2);
  EXPECT_EQ(Parse({"verify-numerics", "--isa", "avx2"}).options->isa, "avx2");
  EXPECT_EQ(Parse({"verify-numerics", "--isa", "sse"}).exit_status, 2);
}

TEST(OptionsTest, MeasuresFormsWithoutACluster) {
  const ParsedCommandLine parsed = Parse({"backend", "--measure"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->command, Command::kMeasureForms);
}

TEST(OptionsTest, SetsFieldsOfAGroup) {
  const ParsedCommandLine parsed =
      Parse({"group", "set", "scalars", "lr=0.5", "adamw.eps=1e-6", "--endpoints", "a:1"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->command, Command::kGroupSet);
  EXPECT_EQ(parsed.options->group, "scalars");
  EXPECT_EQ(parsed.options->settings, (std::vector<std::string>{"lr=0.5", "adamw.eps=1e-6"}));
  EXPECT_FALSE(parsed.options->expected_revision.has_value());
  const ParsedCommandLine expecting =
      Parse({"group", "set", "scalars", "lr=", "--expect-revision", "7", "--endpoints", "a:1"});
  ASSERT_TRUE(expecting.options.has_value()) << expecting.text;
  EXPECT_EQ(expecting.options->expected_revision, 7u);
}

// They are job set with one field.
TEST(OptionsTest, PausesAndResumesTheJob) {
  for (const auto& [command, setting] :
       {std::pair("pause", "paused=true"), std::pair("resume", "paused=false")}) {
    const ParsedCommandLine parsed = Parse({command, "--endpoints", "a:1", "--job", "tiny"});
    ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
    EXPECT_EQ(parsed.options->command, Command::kGroupSet);
    EXPECT_EQ(parsed.options->group, "");
    EXPECT_EQ(parsed.options->job, "tiny");
    EXPECT_EQ(parsed.options->settings, std::vector<std::string>{setting});
  }
  EXPECT_EQ(Parse({"pause", "lr=1", "--endpoints", "a:1"}).exit_status, 2);
}

TEST(OptionsTest, TakesGlobalOptionsBeforeAndAfterTheCommand) {
  const ParsedCommandLine parsed =
      Parse({"--endpoints", "a:1,b:2", "steps", "--limit", "3", "-o", "json"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->endpoints, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(parsed.options->limit, 3);
  EXPECT_TRUE(parsed.options->json);
}

TEST(OptionsTest, FindsEndpointAndCertificatesInAQuickstartDirectory) {
  const std::string directory = DirectoryWithPort("7700\n");
  const ParsedCommandLine parsed = Parse({"--dir", directory.c_str(), "status"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->endpoints, std::vector<std::string>{"127.0.0.1:7700"});
  EXPECT_EQ(parsed.options->tls.ca, directory + "/tls/ca.crt");
  EXPECT_EQ(parsed.options->tls.certificate, directory + "/tls/admin.crt");
  EXPECT_EQ(parsed.options->tls.private_key, directory + "/tls/admin.key");
}

TEST(OptionsTest, FlagBeatsEnvironmentBeatsDirectory) {
  const std::string directory = DirectoryWithPort("7700\n");
  setenv("KAON_DIR", directory.c_str(), 1);
  setenv("KAON_ENDPOINTS", "env:1", 1);
  setenv("KAON_CERT", "env.crt", 1);
  const ParsedCommandLine from_environment = Parse({"status"});
  const ParsedCommandLine from_flag = Parse({"status", "--endpoints", "flag:1", "--cert", "f.crt"});
  unsetenv("KAON_DIR");
  unsetenv("KAON_ENDPOINTS");
  unsetenv("KAON_CERT");
  ASSERT_TRUE(from_environment.options.has_value()) << from_environment.text;
  EXPECT_EQ(from_environment.options->endpoints, std::vector<std::string>{"env:1"});
  EXPECT_EQ(from_environment.options->tls.certificate, "env.crt");
  EXPECT_EQ(from_environment.options->tls.ca, directory + "/tls/ca.crt");
  ASSERT_TRUE(from_flag.options.has_value()) << from_flag.text;
  EXPECT_EQ(from_flag.options->endpoints, std::vector<std::string>{"flag:1"});
  EXPECT_EQ(from_flag.options->tls.certificate, "f.crt");
}

TEST(OptionsTest, BadCommandLinesExitWithTwoAndSayWhy) {
  const std::pair<std::vector<const char*>, const char*> lines[] = {
      {{}, "subcommand"},
      {{"explode", "--endpoints", "a:1"}, "explode"},
      {{"job", "--endpoints", "a:1"}, "subcommand"},
      {{"status"}, "--endpoints"},
      {{"status", "--endpoints", "a:1", "-o", "xml"}, "xml"},
      {{"steps", "--endpoints", "a:1", "--limit", "1001"}, "1001"},
      {{"group", "set", "scalars", "--endpoints", "a:1"}, "settings"},
      {{"group", "set", "", "lr=1", "--endpoints", "a:1"}, "kaonctl job set"},
      {{"group", "set", "scalars", "lr", "--endpoints", "a:1"}, "'lr' is not FIELD=VALUE"},
      {{"group", "set", "scalars", "=1", "--endpoints", "a:1"}, "'=1' is not FIELD=VALUE"},
      {{"status", "--endpoints", "a:1", "--timeout", "nan"}, "is \"nan\", must be a finite"},
      {{"status", "--endpoints", "a:1", "--timeout", "0x5"}, "--timeout"},
      {{"steps", "--endpoints", "a:1", "--limit", " 5"}, "is \" 5\", must be a decimal number"},
      {{"steps", "--endpoints", "a:1", "--limit", "0x5"}, "--limit"},
      {{"group", "set", "g", "lr=1", "--endpoints", "a:1", "--expect-revision", "+1"}, "\"+1\""},
      {{"status", "--endpoints", "a:1, b:2"}, "--endpoints names ' b:2', must be host:port"},
      {{"status", "--dir", "/nonexistent"}, "/nonexistent/coordinator.port"},
      {{"steps", "--shard", "a:1"}, "--shard is for health, status, log set and config only"},
      {{"status", "--shard", "a"}, "--shard is 'a', must be host:port"},
      {{"job", "set", "a=1", "--endpoints", "a:1", "--watch", "1"}, "--watch repeats only"},
      {{"completion", "fish"}, "fish"},
  };
  for (const auto& [words, why] : lines) {
    const ParsedCommandLine parsed = Parse(words);
    EXPECT_FALSE(parsed.options.has_value());
    EXPECT_EQ(parsed.exit_status, 2) << parsed.text;
    EXPECT_NE(parsed.text.find(why), std::string::npos) << parsed.text;
  }
}

TEST(OptionsTest, KnowsTheFormats) {
  EXPECT_TRUE(Parse({"status", "--shard", "a:1", "-o", "yaml"}).options->yaml);
  EXPECT_TRUE(Parse({"status", "--shard", "a:1", "-o", "wide"}).options->wide);
  EXPECT_EQ(Parse({"status", "--shard", "a:1", "--watch", "2"}).options->watch_seconds, 2.0);
}

TEST(OptionsTest, ErrorsOfTheCommandLineAreJsonToo) {
  for (const auto& words : {std::vector<const char*>{"explode", "-o", "json"},
                            std::vector<const char*>{"explode", "--output=json"}}) {
    EXPECT_EQ(Parse(words).text.rfind("{\n  \"error\"", 0), 0u) << Parse(words).text;
  }
}

TEST(OptionsTest, ADirectoryWithoutAnAdminsCertificateIsOfAnotherRole) {
  const std::string directory = DirectoryWithPort("7700\n");
  ASSERT_EQ(mkdir((directory + "/tls").c_str(), 0700), 0);
  std::ofstream(directory + "/tls/checkpointer.crt") << "x";
  EXPECT_EQ(Parse({"--dir", directory.c_str(), "status"}).options->tls.certificate,
            directory + "/tls/checkpointer.crt");
  std::ofstream(directory + "/tls/reader.crt") << "x";
  EXPECT_EQ(Parse({"--dir", directory.c_str(), "status"}).options->tls.certificate,
            directory + "/tls/reader.crt");
  std::ofstream(directory + "/tls/admin.crt") << "x";
  EXPECT_EQ(Parse({"--dir", directory.c_str(), "status"}).options->tls.private_key,
            directory + "/tls/admin.key");
}

TEST(OptionsTest, VersionAndCompletionNeedNoCluster) {
  EXPECT_EQ(Parse({"version"}).options->command, Command::kVersion);
  const ParsedCommandLine version = Parse({"--version"});
  EXPECT_EQ(version.exit_status, 0);
  EXPECT_EQ(version.text.rfind("kaonctl 0.", 0), 0u) << version.text;
  EXPECT_NE(Parse({"completion", "bash"}).text.find("complete -o default -F _kaonctl kaonctl"),
            std::string::npos);
}

TEST(OptionsTest, HelpNamesEveryCommandAndExitsWithZero) {
  const ParsedCommandLine parsed = Parse({"--help"});
  EXPECT_FALSE(parsed.options.has_value());
  EXPECT_EQ(parsed.exit_status, 0);
  for (const char* word : {"status", "job", "parameters", "steps", "health", "KAON_DIR"}) {
    EXPECT_NE(parsed.text.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace kaon::admin_cli
