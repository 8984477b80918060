// Flags override the file's values before any value is checked.
#include "server/flags.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

namespace slotwise {
namespace {

class FlagsTest : public testing::Test {
 protected:
  FlagsTest() { close(mkstemp(path_)); }
  ~FlagsTest() override { std::remove(path_); }

  struct Read {
    v1::ServerConfig values;
    std::string errors;
  };
  // Reads a file of this text with these words on the command line.
  Read With(const std::string& text, std::vector<std::string> words) {
    std::ofstream(path_) << text;
    words.insert(words.begin(), {"slotwise-server", "--config", path_});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    const auto flags = ParseFlags(static_cast<int>(arguments.size()), arguments.data());
    EXPECT_TRUE(std::holds_alternative<Flags>(flags)) << text;
    ConfigErrors errors;
    Read read;
    read.values = ReadConfig(std::get<Flags>(flags), errors).values;
    read.errors = errors.status().message();
    for (std::size_t at = 0; (at = read.errors.find(path_, at)) != std::string::npos;)
      read.errors.replace(at, std::string(path_).size(), "FILE");
    return read;
  }

 private:
  char path_[64] = "/tmp/slotwise_flags_test_XXXXXX";
};

// What is wrong in a file, the flag that replaces it, and what the field then is.
TEST_F(FlagsTest, ReplaceWhatIsWrongInAFile) {
  struct Case {
    std::string text;
    std::vector<std::string> flags;
    std::string (*value)(const v1::ServerConfig&);
    std::string is;
  };
  using Values = v1::ServerConfig;
  const std::vector<Case> cases{
      {"listen: \"7070\"",
       {"--listen", "127.0.0.1:1"},
       [](const Values& v) { return v.listen(); },
       "127.0.0.1:1"},
      {"listen: \"0.0.0.0:1\"",
       {"--listen", "[::1]:1"},
       [](const Values& v) { return v.listen(); },
       "[::1]:1"},
      {"metrics_listen: \"a\"",
       {"--metrics-listen", "[::1]:2"},
       [](const Values& v) { return v.metrics_listen(); },
       "[::1]:2"},
      {"health_listen: \"127.0.0.1:7070\"",
       {"--health-listen", "[::1]:3"},
       [](const Values& v) { return v.health_listen(); },
       "[::1]:3"},
      {"listen: \"0.0.0.0:1\" insecure: false",
       {"--insecure"},
       [](const Values& v) { return std::to_string(v.insecure()); },
       "1"},
      {"backend: 9",
       {"--backend", "cpu"},
       [](const Values& v) { return v1::Backend_Name(v.backend()); },
       "BACKEND_CPU"},
      {"threads: 5000", {"--threads", "0"}, [](const Values& v) { return std::to_string(v.threads()); }, "0"},
      {"log_level: \"loud\"",
       {"--log-level", "debug"},
       [](const Values& v) { return v.log_level(); },
       "debug"},
      {"durability { mode: DURABILITY_MODE_SYNC }",
       {"--data", "/d"},
       [](const Values& v) { return v.durability().folder(); },
       "/d"},
      {"durability { mode: DURABILITY_MODE_INTERVAL }",
       {"--durability", "none"},
       [](const Values& v) { return v1::DurabilityMode_Name(v.durability().mode()); },
       "DURABILITY_MODE_NONE"}};
  for (const Case& one : cases) {
    EXPECT_NE(With(one.text, {}).errors, "") << one.text;
    const Read read = With(one.text, one.flags);
    EXPECT_EQ(read.errors, "") << one.text;
    EXPECT_EQ(one.value(read.values), one.is);
  }
}

TEST_F(FlagsTest, AreNamedWhereTheirValueIsWrong) {
  EXPECT_EQ(With("", {"--durability", "sync"}).errors,
            "--durability: durability.mode is DURABILITY_MODE_SYNC: needs durability.folder, or --data");
  EXPECT_EQ(With("\ndurability { mode: DURABILITY_MODE_SYNC folder: \"/d\" }", {"--data", ""}).errors,
            "FILE:2:14: durability.mode is DURABILITY_MODE_SYNC: needs durability.folder, or --data");
  EXPECT_EQ(
      With("", {"--metrics-listen", "127.0.0.1:7070"}).errors,
      "--metrics-listen: metrics_listen is \"127.0.0.1:7070\": listen takes that port: \"127.0.0.1:7070\"");
  EXPECT_EQ(With("", {"--health-listen", "0.0.0.0:7070"}).errors,
            "--health-listen: health_listen is \"0.0.0.0:7070\": listen takes that port: \"127.0.0.1:7070\"");
  EXPECT_EQ(With("listen: \"0\"\nthreads: 1", {"--listen", "0.0.0.0:1"})
                .errors.find("--listen: listen is \"0.0.0.0:1\": other machines may reach it"),
            0u);
  EXPECT_EQ(With("threads: 5000\n", {"--data", "/d"}).errors, "FILE:1:1: threads is 5000: must be 0 to 4096");
}

// Defaults follow what the flags have made of the file.
TEST_F(FlagsTest, ComeBeforeDefaults) {
  const auto every = [&](const std::string& text, const std::vector<std::string>& flags) {
    return With("durability { folder: \"/d\" " + text + " }", flags).values.durability().checkpoint_every_s();
  };
  EXPECT_EQ(every("", {"--durability", "sync"}), 600u);
  EXPECT_EQ(every("mode: DURABILITY_MODE_SYNC", {"--durability", "none"}), 0u) << "only if somebody asks";
  EXPECT_EQ(every("mode: DURABILITY_MODE_SYNC checkpoint_every_s: 7", {"--durability", "none"}), 7u);
}

}  // namespace
}  // namespace slotwise
