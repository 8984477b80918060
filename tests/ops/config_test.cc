// A configuration is read with its defaults, or is refused in one sentence with file, line, column and field.
#include "server/ops/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "server/ops/config_check.h"

namespace slotwise {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto config = ParseConfig(text, "server.pbtxt");
  EXPECT_FALSE(config.ok()) << text;
  return config.status().message();
}

TEST(Config, WithNothingInItHasTheDocumentedDefaults) {
  const auto config = ParseConfig("", "server.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status().message();
  for (const v1::ServerConfig& values : {config->values, DefaultConfig().values}) {
    EXPECT_EQ(values.listen(), "127.0.0.1:7070");
    EXPECT_EQ(values.advertise_host(), "");
    EXPECT_EQ(values.backend(), v1::BACKEND_AUTO);
    EXPECT_EQ(values.threads(), 0u);
    EXPECT_EQ(values.log_level(), "info");
    EXPECT_EQ(values.log_format(), v1::LOG_FORMAT_TEXT);
    EXPECT_EQ(values.limits().max_message_mib(), 64u);
    EXPECT_EQ(values.limits().max_round_mib(), 0u) << "it follows the memory";
    EXPECT_EQ(values.limits().max_inbox_mib(), 0u) << "it follows the memory";
    EXPECT_EQ(values.limits().max_tables(), 1024u);
    EXPECT_EQ(values.limits().max_connections(), 4096u);
    EXPECT_EQ(values.limits().step_timeout_ms(), 60'000u);
    EXPECT_EQ(values.limits().collective_timeout_ms(), 60'000u);
    EXPECT_EQ(values.limits().max_rank_percent(), 150u);
    EXPECT_FALSE(values.deterministic());
    EXPECT_EQ(values.partial_sums(), v1::DATA_TYPE_FLOAT32);
    EXPECT_EQ(values.tables_size(), 0);
  }
}

TEST(Limits, FollowTheMemoryWhereTheyAreNotSet) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  const auto fitted = [](const std::string& text, const MemoryShare& memory) {
    const auto config = ParseConfig("limits { " + text + " }", "server.pbtxt");
    EXPECT_TRUE(config.ok()) << config.status().message();
    v1::Limits limits = config->values.limits();
    FitLimits(limits, memory);
    return std::pair(limits.max_round_mib(), limits.max_inbox_mib());
  };
  using Mib = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(fitted("", {.device = 24 * kGiB, .host = 24 * kGiB}), Mib(512, 1024)) << "the least";
  EXPECT_EQ(fitted("", {.device = 0, .host = 0}), Mib(512, 1024));
  EXPECT_EQ(fitted("", {.device = 80 * kGiB, .host = 256 * kGiB}), Mib(1280, 2560));
  EXPECT_EQ(fitted("", {.device = 80 * kGiB, .host = 32 * kGiB}), Mib(1024, 2048)) << "the host is small";
  EXPECT_EQ(fitted("", {.device = 1000 * kGiB, .host = 1000 * kGiB}), Mib(4096, 8192)) << "the most";
  EXPECT_EQ(fitted("max_round_mib: 7", {.device = 80 * kGiB, .host = 256 * kGiB}), Mib(7, 1024));
  EXPECT_EQ(fitted("max_round_mib: 3000", {.device = kGiB, .host = kGiB}), Mib(3000, 6000));
  EXPECT_EQ(fitted("max_inbox_mib: 100", {.device = 80 * kGiB, .host = 256 * kGiB}), Mib(1280, 100));
  EXPECT_EQ(fitted("max_message_mib: 2047", {.device = kGiB, .host = kGiB}), Mib(512, 2047));
}

TEST(Config, KeepsNothingUnlessAFolderIsNamed) {
  const auto durability = [](const std::string& text) {
    const auto config = ParseConfig("durability { " + text + " }", "server.pbtxt");
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config->values.durability();
  };
  const v1::Durability none = durability("");
  EXPECT_EQ(none.folder(), "");
  EXPECT_EQ(none.mode(), v1::DURABILITY_MODE_NONE);
  EXPECT_EQ(none.interval_s(), 30u);
  EXPECT_EQ(none.checkpoint_every_s(), 0u);
  EXPECT_EQ(none.keep(), 2u);
  EXPECT_EQ(none.max_deltas(), 16u);
  EXPECT_EQ(none.max_preimage_mib(), 256u);
  const v1::Durability sync = durability("folder: \"/x\" mode: DURABILITY_MODE_SYNC");
  EXPECT_EQ(sync.checkpoint_every_s(), 600u) << "or the journal would grow for ever";

  const auto refused = [](const std::string& text) {
    const auto config = ParseConfig("durability { " + text + " }", "server.pbtxt");
    return config.ok() ? "" : config.status().message();
  };
  EXPECT_EQ(refused("mode: DURABILITY_MODE_SYNC"),
            "server.pbtxt:1:14: durability.mode is DURABILITY_MODE_SYNC: needs durability.folder");
  EXPECT_EQ(refused("keep: 1001"), "server.pbtxt:1:14: durability.keep is 1001: must be 1 to 1000");
  EXPECT_EQ(
      refused("mode: 7"),
      "server.pbtxt:1:14: durability.mode is 7: must be DURABILITY_MODE_NONE, DURABILITY_MODE_INTERVAL or "
      "DURABILITY_MODE_SYNC");
}

TEST(Config, KeepsWhatIsWrittenAndKnowsWhereTheTablesStand) {
  const auto config = ParseConfig(
      "# a comment\n"
      "listen: \"[::]:80\"\n"
      "backend: BACKEND_CPU\n"
      "limits { max_round_mib: 7 step_timeout_ms: 1 }\n"
      "tables { name: \"a\" dim: 4 }\n"
      "  tables {\n    name: \"b\"\n  }\n",
      "etc/s.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->values.listen(), "[::]:80");
  EXPECT_EQ(config->values.backend(), v1::BACKEND_CPU);
  EXPECT_EQ(config->values.limits().max_round_mib(), 7u);
  EXPECT_EQ(config->values.limits().max_inbox_mib(), 0u);
  EXPECT_EQ(config->table_places,
            (std::vector<std::string>{"etc/s.pbtxt:5:1: tables[0]", "etc/s.pbtxt:6:3: tables[1]"}));
}

TEST(Config, ThatDoesNotParseIsRefusedWithItsPlace) {
  EXPECT_EQ(ErrorOf("\nlisten: \"a:1\"\n  colour: 3\n"),
            "server.pbtxt:3:9: Message type \"slotwise.v1.ServerConfig\" has no field named \"colour\".");
  EXPECT_EQ(ErrorOf("tables {\n  nome: \"a\"\n}").find("server.pbtxt:2:7: "), 0u);
  EXPECT_EQ(ErrorOf("threads: -1").find("server.pbtxt:1:10: "), 0u);
  EXPECT_EQ(
      ErrorOf("backend: BACKEND_TPU").find("server.pbtxt:1:21: Unknown enumeration value of \"BACKEND_TPU\""),
      0u);
  EXPECT_EQ(ErrorOf("listen: \"a:1\"\nlisten: \"b:2\"").find("server.pbtxt:2:"), 0u);
  EXPECT_EQ(ErrorOf("limits {").find("server.pbtxt:1:"), 0u);
}

TEST(Config, WithAValueOutOfRangeIsRefusedWithPlaceFieldAndValue) {
  EXPECT_EQ(ErrorOf("\nlimits {\n    max_message_mib: 9999\n}"),
            "server.pbtxt:3:5: limits.max_message_mib is 9999: must be 1 to 2047");
  EXPECT_EQ(ErrorOf("limits { max_round_mib: 4000000000 }"),
            "server.pbtxt:1:10: limits.max_round_mib is 4000000000: must be 1 to 4096");
  EXPECT_EQ(ErrorOf("limits { step_timeout_ms: 86400001 }"),
            "server.pbtxt:1:10: limits.step_timeout_ms is 86400001: must be 1 to 86400000");
  EXPECT_EQ(ErrorOf("limits { collective_timeout_ms: 999 }"),
            "server.pbtxt:1:10: limits.collective_timeout_ms is 999: must be 1000 to 86400000");
  EXPECT_EQ(ErrorOf("limits { max_rank_percent: 109 }"),
            "server.pbtxt:1:10: limits.max_rank_percent is 109: must be 110 to 1000000");
  EXPECT_EQ(
      ErrorOf("limits { max_inbox_mib: 10 }"),
      "server.pbtxt:1:10: limits.max_inbox_mib is 10: must not be below limits.max_message_mib, which is 64");
  EXPECT_EQ(
      ErrorOf("limits { max_message_mib: 2000 max_inbox_mib: 1024 }"),
      "server.pbtxt:1:32: limits.max_inbox_mib is 1024: must not be below limits.max_message_mib, which is "
      "2000");
  EXPECT_EQ(ErrorOf("threads: 4097"), "server.pbtxt:1:1: threads is 4097: must be 0 to 4096");
  EXPECT_EQ(ErrorOf("log_level: \"loud\""),
            "server.pbtxt:1:1: log_level is \"loud\": must be trace, debug, info, warning or error");
  EXPECT_EQ(ErrorOf("log_format: 9").find("server.pbtxt:1:1: log_format is 9"), 0u);
  EXPECT_EQ(ErrorOf("partial_sums: 9"),
            "server.pbtxt:1:1: partial_sums is 9: must be DATA_TYPE_FLOAT32, DATA_TYPE_FLOAT16 or "
            "DATA_TYPE_BFLOAT16");
  EXPECT_EQ(ErrorOf("backend: 9").find("server.pbtxt:1:1: backend is 9"), 0u);
  EXPECT_EQ(ErrorOf("listen: \"7070\""),
            "server.pbtxt:1:1: listen: \"7070\" is not host:port with a port of 0 to 65535");
  EXPECT_EQ(
      ErrorOf("metrics_listen: \"127.0.0.1:65536\""),
      "server.pbtxt:1:1: metrics_listen: \"127.0.0.1:65536\" is not host:port with a port of 0 to 65535");
  EXPECT_EQ(ErrorOf("advertise_host: \"a:1\"").find("server.pbtxt:1:1: advertise_host is \"a:1\""), 0u);
  EXPECT_EQ(ErrorOf("tables { name: \"a\" }\ntables { name: \"a\" }"),
            "server.pbtxt:2:1: tables[1].name is \"a\": another table has that name");
  EXPECT_EQ(
      ErrorOf("advertise_host: \"a\\001\""),
      "server.pbtxt:1:1: advertise_host is \"a\\x01\": must be a host's name or address, without a port");
  EXPECT_EQ(ErrorOf("limits { max_tables: 1 }\ntables { name: \"a\" }\ntables { name: \"b\" }"),
            "server.pbtxt:3:1: tables is 2 tables: limits.max_tables allows 1");
}

TEST(Config, LetsOtherMachinesReachTheServerOnlyIfItSaysSo) {
  const auto check = [](const std::string& text) {
    const auto config = ParseConfig(text, "server.pbtxt");
    EXPECT_TRUE(config.ok()) << config.status().message();
    return CheckWhoReaches(config->values);
  };
  const std::string rule =
      ": other machines may reach it, without both authentication and encryption: name a loopback address, "
      "such as "
      "127.0.0.1, or, on a private network, say insecure: true (--insecure)";
  const std::string or_tls = rule + ", or have security.tls, with principals or a client_ca_file";
  EXPECT_TRUE(check("").ok());
  EXPECT_TRUE(check("listen: \"localhost:0\" metrics_listen: \"[::1]:9\"").ok());
  EXPECT_EQ(check("listen: \"0.0.0.0:7070\""), InvalidArgument("listen is \"0.0.0.0:7070\"" + or_tls));
  EXPECT_EQ(check("listen: \"[::]:1\" insecure: false"), InvalidArgument("listen is \"[::]:1\"" + or_tls));
  EXPECT_EQ(check("metrics_listen: \"node1:9464\""),
            InvalidArgument("metrics_listen is \"node1:9464\"" + rule + " or insecure_metrics: true"));
  EXPECT_TRUE(check("metrics_listen: \"node1:9464\" insecure_metrics: true").ok());
  EXPECT_EQ(check("listen: \"0.0.0.0:7070\" insecure_metrics: true"),
            InvalidArgument("listen is \"0.0.0.0:7070\"" + or_tls));
  EXPECT_TRUE(check("listen: \"0.0.0.0:7070\" metrics_listen: \"[::]:1\" insecure: true").ok());
}

TEST(Config, NamesNoPortTwice) {
  const auto check = [](const std::string& text) {
    const auto config = ParseConfig(text, "server.pbtxt");
    EXPECT_TRUE(config.ok()) << config.status().message();
    return CheckPorts(config->values);
  };
  EXPECT_TRUE(check("").ok());
  EXPECT_TRUE(check("listen: \"a:1\" metrics_listen: \"a:2\" health_listen: \"a:3\"").ok());
  EXPECT_TRUE(check("listen: \"a:0\" metrics_listen: \"a:0\" health_listen: \"a:0\"").ok());
  EXPECT_TRUE(check("listen: \"127.0.0.1:1\" metrics_listen: \"127.0.0.2:1\"").ok());
  EXPECT_EQ(
      check("metrics_listen: \"127.0.0.1:7070\""),  // listen's default
      InvalidArgument("metrics_listen is \"127.0.0.1:7070\": listen takes that port: \"127.0.0.1:7070\""));
  EXPECT_EQ(check("listen: \"a:1\" health_listen: \"a:1\""),
            InvalidArgument("health_listen is \"a:1\": listen takes that port: \"a:1\""));
  EXPECT_EQ(check("metrics_listen: \"0.0.0.0:1\" health_listen: \"a:1\""),
            InvalidArgument("health_listen is \"a:1\": metrics_listen takes that port: \"0.0.0.0:1\""));
  EXPECT_EQ(check("listen: \"a:1\" metrics_listen: \"[::]:1\""),
            InvalidArgument("metrics_listen is \"[::]:1\": listen takes that port: \"a:1\""));
}

TEST(Config, IsReadFromAFileOrTheReasonSaid) {
  char path[] = "/tmp/slotwise_config_test_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  EXPECT_TRUE(ReadConfig(path).ok()) << "an empty file";
  std::remove(path);
  const auto gone = ReadConfig(path);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.status(),
            NotFound(std::string("cannot read the configuration ") + path + ": No such file or directory"));
  EXPECT_EQ(ReadConfig("/dev/zero").status(),
            InvalidArgument("the configuration /dev/zero is longer than 16777216 bytes"));
  const auto folder = ReadConfig("/tmp");
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.status().message(), "cannot read the configuration /tmp: Is a directory");
}

TEST(Config, FingerprintsAreEqualIfWhatRanksMustShareIs) {
  const auto fingerprint = [](const std::string& text) {
    const auto config = ParseConfig(text, "server.pbtxt");
    EXPECT_TRUE(config.ok()) << config.status().message();
    return Fingerprint(*config);
  };
  const std::uint64_t plain = fingerprint("tables { name: \"a\" dim: 4 }");
  EXPECT_EQ(plain,
            fingerprint("listen: \"b:1\" threads: 3 log_level: \"debug\" tables { dim: 4 name: \"a\" }"));
  EXPECT_EQ(plain, fingerprint("limits { max_round_mib: 0 } tables { dim: 4 name: \"a\" }"));
  EXPECT_NE(plain, fingerprint("limits { max_round_mib: 512 } tables { dim: 4 name: \"a\" }"));
  EXPECT_NE(plain, fingerprint("tables { name: \"a\" dim: 5 }"));
  EXPECT_NE(plain, fingerprint("limits { max_round_mib: 511 } tables { dim: 4 name: \"a\" }"));
  EXPECT_NE(plain, fingerprint("limits { max_rank_percent: 151 } tables { name: \"a\" dim: 4 }"));
  EXPECT_NE(plain, fingerprint("durability { folder: \"x\" } tables { name: \"a\" dim: 4 }"));
  EXPECT_NE(plain, fingerprint("deterministic: true tables { name: \"a\" dim: 4 }"));
  EXPECT_EQ(plain, fingerprint("partial_sums: DATA_TYPE_FLOAT32 tables { name: \"a\" dim: 4 }"));
  EXPECT_NE(plain, fingerprint("partial_sums: DATA_TYPE_FLOAT16 tables { name: \"a\" dim: 4 }"));
  EXPECT_NE(plain, fingerprint("partial_sums: DATA_TYPE_BFLOAT16 tables { name: \"a\" dim: 4 }"));
  EXPECT_NE(plain, fingerprint(""));
}

}  // namespace
}  // namespace slotwise
