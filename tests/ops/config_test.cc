// A configuration is read with its defaults, or is refused in sentences with file, line, column and field.
#include "server/ops/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

constexpr char kReached[] =
    "other machines may reach it, without both authentication and encryption: name a loopback address, "
    "such as 127.0.0.1, or, on a private network, say insecure: true (--insecure)";
constexpr char kOrTls[] = ", or have security.tls, with principals or a client_ca_file";

std::string ErrorOf(const std::string& text) {
  const auto config = ParseConfig(text, "server.pbtxt");
  EXPECT_FALSE(config.ok()) << text;
  return config.status().message();
}

TEST(Config, WithNothingInItHasTheDocumentedDefaults) {
  const auto config = ParseConfig("", "server.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ConfigErrors none;
  for (const v1::ServerConfig& values : {config->values, ReadConfig("", {}, none).values}) {
    EXPECT_EQ(values.listen(), "127.0.0.1:7070");
    EXPECT_EQ(values.advertise_host(), "");
    EXPECT_EQ(values.backend(), v1::BACKEND_AUTO);
    EXPECT_EQ(values.threads(), 0u);
    EXPECT_EQ(values.log_level(), "info");
    EXPECT_EQ(values.log_format(), v1::LOG_FORMAT_TEXT);
    EXPECT_EQ(values.limits().max_message_mib(), 0u) << "it follows the memory, as do the next";
    EXPECT_EQ(values.limits().max_round_mib(), 0u);
    EXPECT_EQ(values.limits().max_queue_mib(), 0u);
    EXPECT_EQ(values.limits().max_connections(), 0u);
    EXPECT_EQ(values.limits().max_ledger_mib(), 0u);
    EXPECT_EQ(values.limits().max_evicted_mib(), 0u);
    EXPECT_EQ(values.limits().max_tables(), 1024u);
    EXPECT_EQ(values.limits().step_timeout_ms(), 60'000u);
    EXPECT_EQ(values.limits().collective_timeout_ms(), 60'000u);
    EXPECT_EQ(values.limits().max_rank_percent(), 150u);
    EXPECT_FALSE(values.deterministic());
    EXPECT_EQ(values.partial_sums(), v1::DATA_TYPE_FLOAT32);
    EXPECT_EQ(values.tables_size(), 0);
  }
}

TEST(Config, LetsAllConnectionsHaveNoLessThanFourTimesTheCallsOfOne) {
  EXPECT_TRUE(ParseConfig("limits { max_calls: 1024 }", "server.pbtxt").ok());
  const auto config = ParseConfig("limits { max_calls: 1023 }", "server.pbtxt");
  EXPECT_EQ(config.status().message(),
            "server.pbtxt:1:10: limits.max_calls is 1023: must be four times "
            "limits.max_calls_per_connection at least, which is 256");
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
  EXPECT_EQ(none.max_copy_on_write_mib(), 0u) << "it follows the memory";
  const v1::Durability sync = durability("folder: \"/x\" mode: DURABILITY_MODE_SYNC");
  EXPECT_EQ(sync.checkpoint_every_s(), 600u) << "or the journal would grow for ever";

  const auto refused = [](const std::string& text) {
    const auto config = ParseConfig("durability { " + text + " }", "server.pbtxt");
    return config.ok() ? "" : config.status().message();
  };
  EXPECT_EQ(refused("mode: DURABILITY_MODE_SYNC"),
            "server.pbtxt:1:14: durability.mode is DURABILITY_MODE_SYNC: needs durability.folder, or --data");
  EXPECT_EQ(refused("keep: 1001"), "server.pbtxt:1:14: durability.keep is 1001: must be 1 to 1000");
  EXPECT_EQ(
      refused("mode: 7"),
      "server.pbtxt:1:14: durability.mode is 7: must be DURABILITY_MODE_NONE, DURABILITY_MODE_INTERVAL or "
      "DURABILITY_MODE_SYNC");
}

// Each field, as the file has it, and its name in 0.1.
TEST(Config, ReadsAFieldByTheNameThatItHadIn01) {
  const auto parsed = [](const std::string& text) { return ParseConfig(text, "server.pbtxt"); };
  const auto values = [&](const std::string& text) {
    const auto config = parsed(text);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config->values.ShortDebugString();
  };
  for (const auto& [message, field, older] :
       {std::array<std::string, 3>{"limits", "max_queue_mib", "max_inbox_mib"},
        {"limits", "max_gpu_shared_mib", "max_gpu_arena_mib"},
        {"durability", "max_copy_on_write_mib", "max_preimage_mib"}}) {
    EXPECT_EQ(values(message + " { " + older + ": 3000 }"), values(message + " { " + field + ": 3000 }"));
    const std::string refused = message + "." + field + " is 4294967295: must be 1 to 16777216";
    EXPECT_EQ(parsed(message + " {\n " + older + ": 4294967295 }").status().message(),
              "server.pbtxt:2:2: " + refused);
    EXPECT_EQ(parsed(message + " { " + field + ": 7000 " + older + ": 7000 }").status().message(),
              "server.pbtxt:1:" + std::to_string(message.size() + field.size() + 11) + ": " + message + "." +
                  older + " is the older name of " + message + "." + field + ": give the latter alone");
  }
}

TEST(Config, KeepsWhatIsWrittenAndKnowsWhereItStands) {
  const auto config = ParseConfig(
      "# a comment\n"
      "listen: \"[::1]:80\"\n"
      "backend: BACKEND_CPU\n"
      "limits { max_round_mib: 7 step_timeout_ms: 1 }\n"
      "tables { name: \"a\" dim: 4 }\n"
      "  tables {\n    name: \"b\"\n  }\n",
      "etc/s.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->values.listen(), "[::1]:80");
  EXPECT_EQ(config->values.backend(), v1::BACKEND_CPU);
  EXPECT_EQ(config->values.limits().max_round_mib(), 7u);
  EXPECT_EQ(config->values.limits().max_queue_mib(), 0u);
  const auto table = [&](int index) {
    return config->places.At({{v1::ServerConfig::kTablesFieldNumber, index}}).str();
  };
  EXPECT_EQ(table(0), "etc/s.pbtxt:5:1: ");
  EXPECT_EQ(table(1), "etc/s.pbtxt:6:3: ");
  EXPECT_EQ(table(2), "etc/s.pbtxt: ");
}

TEST(Config, ThatDoesNotParseIsRefusedWithItsPlace) {
  EXPECT_EQ(ErrorOf("\nlisten: \"localhost:1\"\n  colour: 3\n"),
            "server.pbtxt:3:3: there is no field colour");
  EXPECT_EQ(ErrorOf("tables {\n  name: \"a\"  nome: \"a\"\n}"),
            "server.pbtxt:2:14: tables[0] has no field nome");
  EXPECT_EQ(ErrorOf("threads: -1").find("server.pbtxt:1:10: "), 0u);
  EXPECT_EQ(ErrorOf("listen: 7070"), "server.pbtxt:1:9: Expected string, got: 7070");
  EXPECT_EQ(ErrorOf("listen: \"localhost:1\"\nlisten: \"localhost:2\"").find("server.pbtxt:2:"), 0u);
  EXPECT_EQ(ErrorOf("limits {").find("server.pbtxt:1:"), 0u);
}

TEST(Config, ThatNamesNoLegalValueIsToldThem) {
  EXPECT_EQ(ErrorOf("backend: BACKEND_TPU"),
            "server.pbtxt:1:10: backend is BACKEND_TPU: must be BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA");
  EXPECT_EQ(ErrorOf("log_format: JSON"),
            "server.pbtxt:1:13: log_format is JSON: must be LOG_FORMAT_TEXT or LOG_FORMAT_JSON");
  EXPECT_EQ(
      ErrorOf("durability {\n\tmode: SYNC }"),
      "server.pbtxt:2:15: durability.mode is SYNC: must be DURABILITY_MODE_NONE, DURABILITY_MODE_INTERVAL "
      "or DURABILITY_MODE_SYNC");
  EXPECT_EQ(ErrorOf("tables { name: \"a\" } tables { combiner: MEAN }")
                .find("server.pbtxt:1:41: tables[1].combiner is MEAN: must be COMBINER_SUM, COMBINER_MEAN, "),
            0u);
  const std::string principal =
      "security { principals { name: \"a\" token_file: \"t\" } principals { name: \"b\" ";
  EXPECT_EQ(
      ErrorOf(principal + "token_file: \"u\"\ngrants { table: \"*\" rights: [RIGHT_READ,\nWRITE] } } }"),
      "server.pbtxt:3:1: security.principals[1].grants[0].rights is WRITE: must be RIGHT_READ, RIGHT_PUSH, "
      "RIGHT_ROWS, RIGHT_ADMIN or RIGHT_OBSERVE");
  EXPECT_EQ(ErrorOf("insecure: yes"), "server.pbtxt:1:11: insecure is yes: must be true or false");
  for (const char* const legal : {"insecure: t", "insecure: True", "insecure: 0", "backend: BACKEND_CPU",
                                  "backend: 2", "backend: BACKEND_UNSPECIFIED"})
    EXPECT_TRUE(ParseConfig(legal, "server.pbtxt").ok()) << legal;
}

TEST(Config, IsToldAllThatIsWrongByLine) {
  EXPECT_EQ(ErrorOf("threads: 5000\n"
                    "colour { shade: 3\n  backend: X [ { ] }\n"),
            "server.pbtxt:2:1: there is no field colour\n"
            "server.pbtxt:2:8: Message type \"slotwise.v1.ServerConfig\" has no field named \"colour\".")
      << "behind what cannot be read nothing is said";
  EXPECT_EQ(ErrorOf("health_listen: 5\n"
                    "log_level: \"loud\"\n"
                    "backend: BACKEND_TPU\n"
                    "threads: 5000 threads: 6\n"
                    "colour { shade: 3 tables < a: [1, {}] > }\n"
                    "limits {\n  max_tables: -1 max_round_mib: 5000\n  keep: 3\n}\n"
                    "deterministic: maybe\n"
                    "metrics_listen: \"7070\"\n"
                    "listen: \"0.0.0.0:1\" durability { mode: SYNC keep: 1001 max_deltas: \"2\" }\n"),
            "server.pbtxt:1:16: Expected string, got: 5\n"
            "server.pbtxt:2:1: log_level is \"loud\": must be trace, debug, info, warning or error\n"
            "server.pbtxt:3:10: backend is BACKEND_TPU: must be BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA\n"
            "server.pbtxt:4:1: threads is 5000: must be 0 to 4096\n"
            "server.pbtxt:4:22: Non-repeated field \"threads\" is specified multiple times.\n"
            "server.pbtxt:5:1: there is no field colour\n"
            "server.pbtxt:7:15: Expected integer, got: -\n"
            "server.pbtxt:7:18: limits.max_round_mib is 5000: must be 1 to 4096\n"
            "server.pbtxt:8:3: limits has no field keep\n"
            "server.pbtxt:10:16: deterministic is maybe: must be true or false\n"
            "server.pbtxt:11:1: metrics_listen: \"7070\" is not host:port with a port of 0 to 65535\n"
            "server.pbtxt:12:1: listen is \"0.0.0.0:1\": " +
                std::string(kReached) + kOrTls +
                "\n"
                "server.pbtxt:12:40: durability.mode is SYNC: must be DURABILITY_MODE_NONE, "
                "DURABILITY_MODE_INTERVAL or "
                "DURABILITY_MODE_SYNC\n"
                "server.pbtxt:12:45: durability.keep is 1001: must be 1 to 1000\n"
                "server.pbtxt:12:68: Expected integer, got: \"2\"");
}

// A statement of a file that has one error.
struct WrongStatement {
  std::string text;
  std::size_t at;  // where the error is: so many bytes behind the statement's beginning
  std::string error;
};

// Returns the line and column behind a text; tabs go on to the next multiple of eight columns.
std::string PlaceBehind(const std::string& text) {
  int line = 0;
  int column = 0;
  for (const char c : text) {
    line += c == '\n' ? 1 : 0;
    column += c == '\t' ? 8 - column % 8 : 1;
    if (c == '\n') column = 0;
  }
  return std::to_string(line + 1) + ":" + std::to_string(column + 1);
}

TEST(Config, IsToldAllThatIsWrongHoweverItsStatementsAreSeparated) {
  const std::vector<WrongStatement> of_the_file{
      {"health_listen:\t\t\t5", 17, "Expected string, got: 5"},
      {"colour:\t\t3", 0, "there is no field colour"},
      {"backend:\tBACKEND_TPU", 9,
       "backend is BACKEND_TPU: must be BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA"},
      {"threads:\t5000", 0, "threads is 5000: must be 0 to 4096"}};
  const std::vector<WrongStatement> of_limits{
      {"max_tables:\t\t-1", 13, "Expected integer, got: -"},
      {"colour\t: [3,\t4]", 0, "limits has no field colour"},
      {"max_queue_mib:\t\t\t\"a\"", 17, "Expected integer, got: \"a\""},
      {"shape\t{ sides:\t3, tables < a: [1,\t{}]; > }", 0, "limits has no field shape"},
      {"max_round_mib:\t9999", 0, "limits.max_round_mib is 9999: must be 1 to 4096"}};
  const std::vector<WrongStatement> behind{
      {"log_level:\t\"loud\"", 0, "log_level is \"loud\": must be trace, debug, info, warning or error"}};
  for (const std::string between : {" ", "\n", ",", ";", " , ", "\t", ";\t", "\t,\t\t", " # why\n\t;"}) {
    std::string text;
    std::string errors;
    const auto add = [&](const std::vector<WrongStatement>& statements) {
      for (const auto& [statement, at, error] : statements) {
        errors += (errors.empty() ? "" : "\n") +
                  ("server.pbtxt:" + PlaceBehind(text + statement.substr(0, at))) + ": " + error;
        text += statement + between;
      }
    };
    add(of_the_file);
    text += "limits\t{";
    add(of_limits);
    text += "}" + between;
    add(behind);
    EXPECT_EQ(ErrorOf(text), errors) << "between statements: " << testing::PrintToString(between);
  }
}

TEST(Config, IsReadOnBehindAStatementThatIsWrong) {
  EXPECT_EQ(ErrorOf("limits { max_tables: 5, colour: 3, max_round_mib: 9999 }"),
            "server.pbtxt:1:25: limits has no field colour\n"
            "server.pbtxt:1:36: limits.max_round_mib is 9999: must be 1 to 4096");
  EXPECT_EQ(ErrorOf("colour: 3; threads: 5000"),
            "server.pbtxt:1:1: there is no field colour\n"
            "server.pbtxt:1:12: threads is 5000: must be 0 to 4096");
  EXPECT_EQ(ErrorOf("threads:\t\t\t\"a\"\thealth_listen: 5"),
            "server.pbtxt:1:33: Expected integer, got: \"a\"\n"
            "server.pbtxt:1:56: Expected string, got: 5")
      << "once each";
}

TEST(Config, IsReadToItsEndHoweverDeepOrLongItIs) {
  EXPECT_EQ(ErrorOf("threads: \"\x1b[31m\""), "server.pbtxt:1:10: Expected integer, got: \"\\x1b[31m\"")
      << "no word of a file moves a terminal's cursor";
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "x{";
  EXPECT_EQ(ErrorOf(deep).find("server.pbtxt:1:1: there is no field x\n"), 0u);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "threads: \"a\"\n";
  const std::string errors = ErrorOf(many);
  EXPECT_EQ(std::ranges::count(errors, '\n'), 100) << "of those that only protobuf's parser sees";
  EXPECT_TRUE(errors.ends_with("server.pbtxt:100:10: there is more that is wrong")) << errors;
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
  EXPECT_EQ(ErrorOf("limits { max_evicted_mib: 1048577 }"),
            "server.pbtxt:1:10: limits.max_evicted_mib is 1048577: must be 1 to 1048576");
  EXPECT_EQ(ErrorOf("limits { max_ledger_mib: 1025 }"),
            "server.pbtxt:1:10: limits.max_ledger_mib is 1025: must be 1 to 1024")
      << "a reader of checkpoints takes no larger file of them";
  EXPECT_EQ(
      ErrorOf("limits { max_queue_mib: 10 max_message_mib: 11 }"),
      "server.pbtxt:1:10: limits.max_queue_mib is 10: must not be below limits.max_message_mib, which is 11");
  EXPECT_TRUE(ParseConfig("limits { max_queue_mib: 10 }", "server.pbtxt").ok()) << "a message follows";
  EXPECT_EQ(
      ErrorOf("limits { max_message_mib: 2000 max_queue_mib: 1024 }"),
      "server.pbtxt:1:32: limits.max_queue_mib is 1024: must not be below limits.max_message_mib, which is "
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

// Returns nothing if the text is right, or the only error, without the file's name.
std::string Wrong(const std::string& text) {
  const auto config = ParseConfig(text, "f");
  return config.ok() ? "" : config.status().message().substr(2);
}

TEST(Config, LetsOtherMachinesReachTheServerOnlyIfItSaysSo) {
  const std::string reached = std::string(": ") + kReached;
  EXPECT_EQ(Wrong(""), "");
  EXPECT_EQ(Wrong("listen: \"localhost:0\" metrics_listen: \"[::1]:9\""), "");
  EXPECT_EQ(Wrong("\n listen: \"0.0.0.0:7070\""), "2:2: listen is \"0.0.0.0:7070\"" + reached + kOrTls);
  EXPECT_EQ(Wrong("listen: \"[::]:1\" insecure: false"), "1:1: listen is \"[::]:1\"" + reached + kOrTls);
  EXPECT_EQ(Wrong("threads: 1 metrics_listen: \"node1:9464\""),
            "1:12: metrics_listen is \"node1:9464\"" + reached + " or insecure_metrics: true");
  EXPECT_EQ(Wrong("metrics_listen: \"node1:9464\" insecure_metrics: true"), "");
  EXPECT_EQ(Wrong("listen: \"0.0.0.0:7070\" insecure_metrics: true"),
            "1:1: listen is \"0.0.0.0:7070\"" + reached + kOrTls);
  EXPECT_EQ(Wrong("listen: \"0.0.0.0:7070\" metrics_listen: \"[::]:1\" insecure: true"), "");
  EXPECT_EQ(Wrong("health_listen: \"[::]:1\""), "");
}

TEST(Config, NamesNoPortTwice) {
  EXPECT_EQ(Wrong("listen: \"[::1]:1\" metrics_listen: \"[::1]:2\" health_listen: \"[::1]:3\""), "");
  EXPECT_EQ(Wrong("listen: \"[::1]:0\" metrics_listen: \"[::1]:0\" health_listen: \"[::1]:0\""), "");
  EXPECT_EQ(Wrong("listen: \"127.0.0.1:1\" metrics_listen: \"127.0.0.2:1\""), "");
  EXPECT_EQ(Wrong("metrics_listen: \"127.0.0.1:7070\""),  // listen's default
            "1:1: metrics_listen is \"127.0.0.1:7070\": listen takes that port: \"127.0.0.1:7070\"");
  EXPECT_EQ(Wrong("health_listen: \"[::1]:1\" listen: \"[::1]:1\""),
            "1:1: health_listen is \"[::1]:1\": listen takes that port: \"[::1]:1\"");
  EXPECT_EQ(Wrong("insecure: true metrics_listen: \"0.0.0.0:1\" health_listen: \"a:1\""),
            "1:44: health_listen is \"a:1\": metrics_listen takes that port: \"0.0.0.0:1\"");
  EXPECT_EQ(Wrong("insecure: true listen: \"a:1\" metrics_listen: \"[::]:1\""),
            "1:30: metrics_listen is \"[::]:1\": listen takes that port: \"a:1\"");
}

TEST(Config, IsReadFromAFileOrTheReasonSaid) {
  char path[] = "/tmp/slotwise_config_test_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  const auto error_of = [](const std::string& name) {
    ConfigErrors errors;
    ReadConfig(name, {}, errors);
    return errors.status().message();
  };
  EXPECT_EQ(error_of(path), "") << "an empty file";
  std::remove(path);
  EXPECT_EQ(error_of(path),
            std::string("cannot read the configuration ") + path + ": No such file or directory");
  EXPECT_EQ(error_of("/dev/zero"), "the configuration /dev/zero is longer than 16777216 bytes");
  EXPECT_EQ(error_of("/tmp"), "cannot read the configuration /tmp: Is a directory");
}

TEST(Config, FingerprintsAreEqualIfWhatRanksMustShareIs) {
  const auto fingerprint = [](const std::string& text) {
    const auto config = ParseConfig(text, "server.pbtxt");
    EXPECT_TRUE(config.ok()) << config.status().message();
    return Fingerprint(*config);
  };
  const std::uint64_t plain = fingerprint("tables { name: \"a\" dim: 4 }");
  EXPECT_EQ(
      plain,
      fingerprint("listen: \"localhost:1\" threads: 3 log_level: \"debug\" tables { dim: 4 name: \"a\" }"));
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
