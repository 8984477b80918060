#include "server/launch/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace slotwise::launch {
namespace {

constexpr char kAbout[] =
    "Runs slotwise-server on a data folder, and starts it again when it ends unasked.\n"
    "\n"
    "  slotwise-launch --data /mnt/ads -- slotwise-server --durability sync\n"
    "  slotwise-launch --data /mnt/ads -n 4 -- slotwise-server --config server.pbtxt\n"
    "  slotwise-launch --data /mnt/ads --hostfile hosts -- slotwise-server --config ...\n"
    "\n"
    "The server gets --data and --attached besides. One launcher holds a folder; before it starts\n"
    "ranks, it kills what an earlier run left of them, on every host of the hostfile, where it has\n"
    "to be installed at the same path. Open MPI's own settings pass through its variables.\n";

constexpr char kMore[] =
    "SIGTERM or SIGINT lets the ranks finish what they were asked; a second one, more than a\n"
    "second later, kills them. SIGHUP, SIGUSR1 and SIGUSR2 are ignored, and logged.\n"
    "\n"
    "Exit code: 0 after a stop; 1 if it does not start; otherwise the server's, when it gives up or\n"
    "ends badly after a stop.";

constexpr double kLeastSeconds = 0.01;
constexpr double kMostSeconds = 86'400;
// Ranks wait five minutes for each other, and twelve hours for their recovery, before they give up.
constexpr double kServersOwnStartLimit = 12 * 3600 + 600;

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

int Refuse(std::string_view why) {
  std::fprintf(stderr, "slotwise-launch: %.*s\n", static_cast<int>(why.size()), why.data());
  return 1;
}

// Returns whether `text` is the flag itself, or flag=value.
bool Names(std::string_view argument, std::string_view flag) {
  return argument == flag || (argument.starts_with(flag) && argument.substr(flag.size()).starts_with('='));
}

}  // namespace

std::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options options;
  double first = 1;
  double longest = 60;
  double within = 600;
  double start_limit = kServersOwnStartLimit;
  double patience = 10;
  double rank_limit = 120;
  CLI::App app(kAbout, "slotwise-launch");
  app.footer(kMore);
  app.set_version_flag("--version", std::string("slotwise-launch ") + SLOTWISE_VERSION);
  const CLI::Validator seconds(
      [](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool is_number = !text.empty() && *end == '\0';
        const bool fits = is_number && value >= kLeastSeconds && value <= kMostSeconds;  // NaN does not
        return fits ? std::string() : "\"" + text + "\" is not 0.01 to 86400 seconds";
      },
      "");
  app.add_option("--data", options.data, "The data folder, which every host sees at the same path")
      ->type_name("FOLDER");
  app.add_option("-n,--ranks", options.ranks,
                 "Ranks to start. Default: as many as the hostfile has slots, or one")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("RANKS");
  app.add_option("--hostfile", options.hostfile, "mpirun's hostfile; read anew at each start")
      ->check(CLI::ExistingFile.description(""))
      ->type_name("FILE");
  app.add_option("--mpirun-arg", options.mpirun_arguments,
                 "Goes to mpirun as it is, before the program; may be repeated: --mpirun-arg=--bind-to\n"
                 "--mpirun-arg=none")
      ->allow_extra_args(false)
      ->type_name("WORD");
  app.add_option("--restarts", options.restarts.most,
                 "Give up after so many restarts within --within. Default 10")
      ->check(CLI::Range(0, 10'000).description(""))
      ->type_name("N");
  app.add_option("--within", within, "Default 600")->check(seconds)->type_name("SECONDS");
  app.add_option("--backoff", first, "The wait before the first restart; it doubles with each one. Default 1")
      ->check(seconds)
      ->type_name("SECONDS");
  app.add_option("--longest-backoff", longest,
                 "The longest wait; a server that has served for so long begins with the first again.\n"
                 "Default 60")
      ->check(seconds)
      ->type_name("SECONDS");
  app.add_option("--start-limit", start_limit,
                 "Kill a server that does not serve after so long, and start it again. Default 43800: later\n"
                 "than ranks give up themselves")
      ->check(seconds)
      ->type_name("SECONDS");
  app.add_option("--patience", patience,
                 "Kill an mpirun that has not ended so long after its ranks on this host have, or after a\n"
                 "stop that finds no rank. Default 10")
      ->check(seconds)
      ->type_name("SECONDS");
  app.add_option("--rank-limit", rank_limit,
                 "Kill an mpirun of which no rank was seen so long after its start, and start it again.\n"
                 "Rank 0 is seen on another host by the data folder's lock. Default 120")
      ->check(seconds)
      ->type_name("SECONDS");
  app.add_option("--sweep", options.sweep)->group("");
  app.add_option("server", options.server, "After --: slotwise-server and its arguments")
      ->type_name("COMMAND");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  options.restarts.first_backoff = Milliseconds(first);
  options.restarts.longest_backoff = Milliseconds(std::max(first, longest));
  options.restarts.within = Milliseconds(within);
  options.start_limit = Milliseconds(start_limit);
  options.patience = Milliseconds(patience);
  options.rank_limit = Milliseconds(rank_limit);
  if (!options.sweep.empty()) return options;
  if (options.data.empty()) return Refuse("--data is required: see slotwise-launch --help");
  if (options.server.empty())
    return Refuse("the server's command is missing: -- slotwise-server ARGUMENT...");
  for (const std::string_view own : {"--data", "--attached"}) {
    if (std::ranges::any_of(options.server, [own](const auto& given) { return Names(given, own); })) {
      return Refuse("the server's arguments have " + std::string(own) +
                    ", which slotwise-launch adds itself");
    }
  }
  return options;
}

}  // namespace slotwise::launch
