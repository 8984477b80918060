// slotwise-ctl manages a server's tables and checkpoints from the command line, and plans their resources.
//
// Exit codes: 0 for success; 1 for a refusal, no answer or lost output; 2 for an invalid command line. With
// --json, stdout is one JSON object, which is {"error": {"code", "message"}} after a refusal. `top` writes
// one object per line.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "client/ctl/checkpoints.h"
#include "client/ctl/commands.h"
#include "client/ctl/plan.h"
#include "client/ctl/stats.h"
#include "wire/standard_output.h"

namespace {

namespace ctl = slotwise::ctl;
using ctl::Answer;
using slotwise::Client;
using slotwise::Result;

// The timeout bounds only calls that wait for one answer; streams of rows may take this long.
constexpr std::chrono::hours kStreamTimeout{24};

struct Flags {
  ctl::ServerFlags server;
  bool json = false;
  bool quiet = false;
  std::optional<double> wait;
  std::vector<std::string> addresses;
  std::string table;
  std::string folder;
  bool without_state = false;
  bool missing_ok = false;
  bool with_ages = false;
  float learning_rate = 0;
  slotwise::RowsToEvict evict;  // those that have expired, unless a flag says others
  slotwise::EvictedSince since;
  std::string checkpoint;
  std::vector<std::string> tables;
  bool delta = false;
  std::string value_type = "float32";
  std::string row_dtype;
  std::string rounding;
  ctl::CreateFlags create;
  ctl::AlterFlags alter;
  ctl::TopFlags top;
  ctl::PlanFlags plan;
};

using Command = std::function<Result<Answer>()>;

constexpr double kMostSeconds = 1e9;

// Accepts a number of seconds within the bounds; nan and inf are outside of them.
CLI::Validator Seconds(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    double seconds = 0;
    if (CLI::detail::lexical_cast(text, seconds) && seconds >= least && seconds <= most) return {};
    std::ostringstream why;
    why << text << " is no number of seconds from " << least << " to " << most;
    return why.str();
  };
  return {check, "SECONDS"};
}

// Refuses numbers that the parser would take for others: -1 as one near 2^64, 2^64 as 2^64 - 1, 010 as 8.
CLI::Validator WholeNumber() {
  const auto check = [](const std::string& text) -> std::string {
    const auto first = text.find_first_not_of(" \t\n\v\f\r");
    if (first == std::string::npos) return "";
    if (text[first] == '-') return text + " is below 0";
    if (text[first] == '0' && text.size() > first + 1) return text + " begins with 0: numbers are decimal";
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data() + first, text.data() + text.size(), number);
    return read.ec == std::errc::result_out_of_range ? text + " is above 2^64 - 1" : "";
  };
  return {check, ""};
}

slotwise::ClientOptions OptionsOf(const Flags& flags, std::chrono::milliseconds timeout) {
  return {.timeout = timeout, .credentials = flags.server.credentials};
}

// Connects, then runs `command`. `timeout` replaces the flags' timeout.
Result<Answer> RunWithClient(const Flags& flags, const std::function<Result<Answer>(Client&)>& command,
                             std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
  const auto seconds = std::chrono::duration<double>(flags.server.timeout);
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(seconds);
  auto client = Client::Connect({flags.server.address}, OptionsOf(flags, patience));
  if (client.ok() && timeout) client = Client::Connect({flags.server.address}, OptionsOf(flags, *timeout));
  if (!client.ok()) return client.status();
  return command(*client);
}

// The commands of the command line. Parsing sets `chosen` to the function of the command. Callbacks refer to
// the Commands, so they must live until `chosen` has run.
class Commands {
 public:
  // All three outlive the commands. The constructor adds all commands.
  Commands(CLI::App& app, Flags& flags, Command& chosen) : app_(app), flags_(flags), chosen_(chosen) {
    AddStatus();
    AddHealth();
    AddStats();
    AddTables();
    AddCreate();
    AddAlter();
    AddRows();
    AddCheckpoints();
    AddPlan();
  }

 private:
  using OnServer = std::function<Result<Answer>(Client&)>;

  void Bind(CLI::App* command, const Command& run) {
    command->callback([this, run] { chosen_ = run; });
  }
  // Sets up a command that asks a server. `timeout` replaces the flags' timeout.
  void BindToServer(CLI::App* command, const OnServer& run,
                    std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    Bind(command, [this, run, timeout] { return RunWithClient(flags_, run, timeout); });
  }

  CLI::App* AddTableCommand(const char* name, const char* help) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->add_option("table", flags_.table, "the table's name")->required();
    return command;
  }

  void AddQuietAndWait(CLI::App* command, const char* wait) {
    command->add_flag("--quiet,-q", flags_.quiet, "say nothing: the exit code is the answer");
    command->add_option("--wait", flags_.wait, wait)->check(Seconds(0, kMostSeconds));
  }

  void AddStatus();
  void AddHealth();
  void AddStats();
  void AddTables();
  void AddCreate();
  void AddAlter();
  void AddEvict();
  void AddEvicted();
  void AddRows();
  void AddCheckpoints();
  void AddPlan();

  CLI::App& app_;
  Flags& flags_;
  Command& chosen_;
};

void Commands::AddStatus() {
  CLI::App* status = app_.add_subcommand("status", "whether the server serves, its version and ranks");
  AddQuietAndWait(status, "seconds that the server has to come to serve");
  Bind(status, [this] { return ctl::ShowStatus(flags_.server, flags_.wait); });
}

void Commands::AddHealth() {
  CLI::App* health =
      app_.add_subcommand("health", "whether servers serve, by the standard gRPC health service");
  health->add_option("addresses", flags_.addresses,
                     "host:port of each server to ask; else the one of --server");
  AddQuietAndWait(health, "seconds that all of the servers have to come to serve");
  Bind(health, [this] {
    if (flags_.addresses.empty()) flags_.addresses = {flags_.server.address};
    return ctl::ShowHealth(flags_.addresses, flags_.server.credentials,
                           flags_.wait.value_or(flags_.server.timeout), flags_.wait.has_value());
  });
}

void Commands::AddStats() {
  BindToServer(
      app_.add_subcommand("stats", "what each rank has counted since it started: calls, latencies, stages"),
      ctl::ShowStats);
  CLI::App* top = app_.add_subcommand(
      "top", "rates, latencies and the slowest stage of each interval, live; with --json an object a line");
  top->add_option("--interval", flags_.top.interval, "seconds between two readings")
      ->check(Seconds(0.1, 86'400))
      ->capture_default_str();
  top->add_option("--count", flags_.top.count, "intervals to show; 0: until it is ended")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  BindToServer(top, [this](Client& client) {
    // A rank answers at once; a long wait is a fault to report.
    const double patience = std::min(flags_.server.timeout, std::max(flags_.top.interval, 2.0));
    const std::chrono::milliseconds most(static_cast<std::int64_t>(patience * 1e3));
    return ctl::Top(client, flags_.top, flags_.json, isatty(STDOUT_FILENO) == 1, most, std::cout);
  });
}

void Commands::AddCreate() {
  CLI::App* create =
      app_.add_subcommand("create", "make a table; again with the same options changes nothing");
  auto& options = flags_.create;
  create->add_option("table", options.name, "its name; may be left out if --file has it");
  create
      ->add_option(
          "--file,-f", options.file,
          "a regular file of at most 1 MiB: a TableOptions in protobuf text format; flags change what "
          "it says")
      ->check(CLI::ExistingFile);
  create->add_option("--optimizer", options.optimizer,
                     "sgd (default), adagrad, ..., or as 'adam { beta1: 0.8 }'");
  create->add_option("--initializer", options.initializer, "as 'uniform { low: -0.1 high: 0.1 }'");
  create
      ->add_option("--eviction", options.eviction,
                   "step, lfu or step_lfu, or as 'lfu { half_life_steps: 1000 at: 1 to: 0.9 }': a full table "
                   "evicts rows (it refuses new keys)")
      ->check([](const std::string& text) { return text.empty() ? "needs a score" : std::string(); });
  create
      ->add_option("--admission", options.admission,
                   "as 'frequency { threshold: 3 }', 'frequency { threshold: 3 counter: COUNTER_BLOOM "
                   "counter_mib: 64 }' or 'probability { p: 0.1 }': which keys get rows (all); "
                   "with 'absent: ABSENT_ROWS_ZEROS', lookups of the others return zeros, not initial values")
      ->check([](const std::string& text) { return text.empty() ? "needs a kind" : std::string(); });
  create->add_option("--combiner", options.combiner, "sum (default), mean, sqrtn or none");
  create
      ->add_option("--row-dtype", options.row_dtype,
                   "float32 (default), float16 or bfloat16: the type of a row's values")
      ->check([](const std::string& text) { return text.empty() ? "needs a type" : std::string(); });
  create
      ->add_option("--rounding", options.rounding,
                   "stochastic (default) or nearest: how a step rounds weights to 16 bits")
      ->check([](const std::string& text) { return text.empty() ? "needs a word" : std::string(); });
  ctl::ForEachFlag([&]<class T>(const slotwise::Option<T>& option, const auto& set) {
    std::string flag = "--" + std::string(option.name);
    std::ranges::replace(flag, '_', '-');
    const std::function<void(const T&)> note = [&options, set](const T& value) {
      options.set.emplace_back([set, value](slotwise::v1::TableOptions& table) { set(table, value); });
    };
    CLI::Option* const added = create->add_option_function<T>(flag, note, std::string(option.help));
    if constexpr (std::is_unsigned_v<T>) added->check(WholeNumber());
  });
  Bind(create, [this]() -> Result<Answer> {
    const auto table = OptionsOf(flags_.create);
    if (!table.ok()) return table.status();
    return RunWithClient(flags_, [&](Client& client) { return ctl::Create(client, *table); });
  });
}

void Commands::AddAlter() {
  CLI::App* alter = AddTableCommand(
      "alter", "give a table other options; its rows stay, and what is not given stays as it is");
  auto& flags = flags_.alter;
  const auto add = [&](const char* flag, std::optional<std::uint64_t>& number, const char* help) {
    alter->add_option(flag, number, help)->check(WholeNumber());
  };
  add("--max-rows", flags.max_rows, "the most rows over all ranks; not below those that there are");
  add("--ttl-steps", flags.ttl_steps, "a row goes that no push has touched for so many steps (0: never)");
  add("--ttl-seconds", flags.ttl_seconds,
      "a row goes that no push has touched for so many seconds (0: never)");
  alter
      ->add_option(
          "--eviction", flags.eviction,
          "as of create; or none: a full table refuses new keys. Rows without scores get that of the "
          "next step")
      ->check(
          [](const std::string& text) { return text.empty() ? "needs a score, or none" : std::string(); });
  alter->add_option("--admission", flags.admission, "as of create; or none: all keys get rows")
      ->check([](const std::string& text) { return text.empty() ? "needs a kind, or none" : std::string(); });
  Bind(alter, [this]() -> Result<Answer> {
    const auto alteration = AlterationOf(flags_.alter);
    if (!alteration.ok()) return alteration.status();
    return RunWithClient(flags_,
                         [&](Client& client) { return ctl::Alter(client, flags_.table, *alteration); });
  });
}

void Commands::AddTables() {
  BindToServer(app_.add_subcommand("tables", "all tables and their options"), ctl::ShowTables);
  CLI::App* describe = AddTableCommand("describe", "a table's options, rows, memory and steps");
  describe->add_flag("--ages", flags_.with_ages,
                     "also how long ago pushes touched the rows, and how often, if the table keeps scores");
  BindToServer(describe,
               [this](Client& client) { return ctl::Describe(client, flags_.table, flags_.with_ages); });
  BindToServer(AddTableCommand("digest", "a hash of a table's contents, wherever they lie"),
               [this](Client& client) { return ctl::ShowDigest(client, flags_.table); });
  CLI::App* drop = AddTableCommand("drop", "forget a table and its rows");
  drop->add_flag("--missing-ok", flags_.missing_ok, "a table that is not there is no error");
  BindToServer(drop, [this](Client& client) { return ctl::Drop(client, flags_.table, flags_.missing_ok); });
  AddEvict();
  AddEvicted();
  CLI::App* rate = AddTableCommand("set-learning-rate", "a table's learning rate from its next step on");
  rate->add_option("rate", flags_.learning_rate, "above 0")->required();
  BindToServer(rate,
               [this](Client& client) { return ctl::SetRate(client, flags_.table, flags_.learning_rate); });
}

void Commands::AddEvict() {
  using Which = slotwise::RowsToEvict::Which;
  CLI::App* evict = AddTableCommand("evict", "remove rows by their scores, those with the lowest first");
  CLI::Option_group* which = evict->add_option_group("which rows go");
  const auto add = [&](const std::string& flag, Which kind, const std::string& help) {
    const std::function<void(const std::uint64_t&)> note = [this, kind](const std::uint64_t& number) {
      flags_.evict = {.which = kind, .number = number};
    };
    which->add_option_function<std::uint64_t>(flag, note, help)->check(WholeNumber());
  };
  add("--keep", Which::kAllBut, "until so many rows are left");
  add("--below-score", Which::kBelow,
      "those with a lower score: rows that no push has touched since that step; with lfu and step_lfu, rows "
      "with a lower count");
  which->add_flag("--expired")->description("those that have expired");
  which->require_option(1);
  BindToServer(evict, [this](Client& client) { return ctl::Evict(client, flags_.table, flags_.evict); });
}

void Commands::AddEvicted() {
  CLI::App* evicted = AddTableCommand(
      "evicted", "the keys that were evicted or have expired, by round, as far as the server remembers them");
  evicted->add_option("--after-round", flags_.since.round, "in later rounds than this one; 0: all")
      ->check(WholeNumber());
  evicted
      ->add_option("--instance", flags_.since.instance,
                   "the server's instance that the round is from: if the server has started again since, the "
                   "answer has a gap; 0: not compared")
      ->check(WholeNumber());
  BindToServer(evicted,
               [this](Client& client) { return ctl::ShowEvicted(client, flags_.table, flags_.since); });
}

void Commands::AddRows() {
  CLI::App* save = AddTableCommand("export", "save a table's rows as a folder of .npy files");
  save->add_option("folder", flags_.folder, "keys.npy, values.npy, state.npy and table.json are put there")
      ->required();
  CLI::Option* none =
      save->add_flag("--without-state", flags_.without_state, "not the optimizer's state, nor state.npy");
  save->add_flag("--with-state")
      ->description("also the optimizer's state, which is so anyway")
      ->excludes(none);
  const auto export_rows = [this](Client& client) {
    return ctl::Export(client, flags_.table, flags_.folder, !flags_.without_state);
  };
  BindToServer(save, export_rows, kStreamTimeout);
  CLI::App* load = AddTableCommand("import", "put a folder's rows into a table, made if it is not there");
  load->add_option("folder", flags_.folder, "what export, or slotwise.rows.save_npy of Python, has saved")
      ->required()
      ->check(CLI::ExistingDirectory);
  load->add_flag("--without-state", flags_.without_state,
                 "rows get the state of new ones, and the table keeps its count of steps");
  const auto import_rows = [this](Client& client) {
    return ctl::Import(client, flags_.table, flags_.folder, !flags_.without_state);
  };
  BindToServer(load, import_rows, kStreamTimeout);
}

void Commands::AddCheckpoints() {
  CLI::App* group = app_.add_subcommand("checkpoint", "checkpoints in the server's data folder");
  group->require_subcommand(1);
  CLI::App* save = group->add_subcommand("save", "write a checkpoint of all tables while everything goes on");
  save->add_flag("--delta", flags_.delta, "only what has changed since the newest, if the server knows that");
  save->add_option("--value-type", flags_.value_type, "of rows in it: float32, float16 or bfloat16")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}))
      ->capture_default_str();
  BindToServer(
      save, [this](Client& client) { return ctl::SaveCheckpoint(client, flags_.delta, flags_.value_type); });
  BindToServer(
      group->add_subcommand("list", "all checkpoints, the newest first, and whether they can be used"),
      ctl::ListCheckpoints);
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = group->add_subcommand(name, help);
    command->add_option("id", flags_.checkpoint, "the checkpoint's, as `checkpoint list` shows it")
        ->required();
    return command;
  };
  using OnCheckpoint = Result<Answer> (*)(Client&, const std::string&);
  struct OfOne {
    const char* name;
    const char* help;
    OnCheckpoint run;
  };
  for (const auto& [name, help, run] : {
           OfOne{"show", "all that is known of a checkpoint; --json has its manifest", ctl::ShowCheckpoint},
           OfOne{"verify", "read all files of a checkpoint and of its chain back", ctl::VerifyCheckpoint},
           OfOne{"pin", "keep a checkpoint and its chain until it is released", ctl::PinCheckpoint},
           OfOne{"release", "let a pinned checkpoint go once newer ones are there", ctl::ReleaseCheckpoint},
           OfOne{"compact", "fold a delta and its chain into a new base", ctl::CompactCheckpoint},
       }) {
    BindToServer(add(name, help), [this, run](Client& client) { return run(client, flags_.checkpoint); });
  }
  CLI::App* load = add(
      "load", "put a checkpoint's tables in the place of all that the server has; what came since is lost");
  load->add_option("--table", flags_.tables, "load this table of it, and no other; may come several times")
      ->allow_extra_args(false);
  load->add_option("--row-dtype", flags_.row_dtype,
                   "keep rows as float32, float16 or bfloat16 from now on (as the checkpoint's tables did)")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  load->add_option("--rounding", flags_.rounding,
                   "with --row-dtype: how steps round these rows, stochastic (default) or nearest")
      ->check(CLI::IsMember({"stochastic", "nearest"}));
  BindToServer(load, [this](Client& client) {
    return ctl::LoadCheckpoint(client, flags_.checkpoint, flags_.tables, flags_.row_dtype, flags_.rounding);
  });
}

void Commands::AddPlan() {
  CLI::App* plan = app_.add_subcommand(
      "plan", "what a table will take: memory, network, disk, times; asks no server (docs/operations.md)");
  auto& options = flags_.plan;
  const auto add = [&](const char* name, auto& value, const char* help) {
    CLI::Option* const option = plan->add_option(name, value, help);
    if constexpr (std::is_unsigned_v<std::remove_reference_t<decltype(value)>>) option->check(WholeNumber());
    return option;
  };
  const auto add_default = [&](const char* name, auto& value, const char* help) {
    add(name, value, help)->capture_default_str();
  };
  add("--rows", options.rows, "of the table, over all ranks")->required();
  add("--dim", options.dim, "elements a row")->required();
  add_default("--optimizer", options.optimizer, "sgd, adagrad, ...: its state lies beside the rows");
  add_default("--row-dtype", options.row_dtype,
              "the table's: float32, float16 or bfloat16; state is float32");
  add_default("--rounding", options.rounding,
              "the table's, with a row type of 16 bits: stochastic or nearest");
  plan->add_flag("--evicts", options.evicts, "the table evicts, or its rows expire, so they have scores");
  add_default("--counter-mib", options.counter_mib,
              "of the table's Bloom counter of rare keys, over all ranks; 0: none");
  add_default("--max-load", options.max_load, "the table's");
  add_default("--ranks", options.ranks, "of the server, one a GPU");
  add_default("--slots", options.slots, "bags a sample");
  add_default("--hot", options.hot, "keys a bag");
  add_default("--batch", options.batch, "samples a step, of all trainers together");
  add_default("--steps", options.steps, "steps a second");
  add_default("--data-type", options.data_type,
              "of values and gradients on the wire: float32, float16 or bfloat16");
  add_default("--partial-sums", options.partial_sums, "the configuration's: float32, float16 or bfloat16");
  add_default("--backend", options.backend, "cuda or cpu");
  add_default("--durability", options.durability, "none, interval or sync");
  add_default("--checkpoint-every", options.checkpoint_every,
              "seconds; of interval, half of durability.interval_s");
  add_default("--copy-on-write-mib,--preimage-mib", options.copy_on_write_mib,
              "durability.max_copy_on_write_mib; 0: the server's default");
  add_default("--round-mib", options.round_mib, "limits.max_round_mib; 0: the server's default");
  add_default("--queue-mib,--inbox-mib", options.queue_mib, "limits.max_queue_mib; 0: the server's default");
  add_default("--host-mib", options.host_mib, "a rank's share of its host's memory, in MiB; 0: plenty");
  add_default("--network", options.network, "GB/s of each rank, each way");
  add_default("--disk", options.disk, "GB/s of the data folder, of all ranks together");
  Bind(plan, [this] { return ctl::Plan(flags_.plan); });
}

// Writes a refusal to stderr, and with --json to stdout too. Returns the exit code.
int Refuse(const Flags& flags, const std::string& code, const std::string& message) {
  if (flags.json) {
    std::cout << nlohmann::ordered_json{{"error", {{"code", code}, {"message", message}}}}.dump() << "\n";
  }
  if (!flags.quiet) std::cerr << "slotwise-ctl: " << code << ": " << message << "\n";
  return 1;
}

int Run(const Flags& flags, const Command& chosen) {
  const auto answer = chosen();
  if (!answer.ok())
    return Refuse(flags, std::string(ToString(answer.status().code())), answer.status().message());
  if (!answer->warning.empty()) std::cerr << "slotwise-ctl: warning: " << answer->warning << "\n";
  if (!flags.quiet && !answer->json.is_null())
    std::cout << (flags.json ? answer->json.dump(2) + "\n" : answer->text);
  return answer->good ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("A Slotwise server's tables and checkpoints from the command line.", "slotwise-ctl");
  app.footer(
      "Exit codes: 0 done, 1 refused, no answer or output that could not be written, 2 usage. `slotwise-ctl "
      "COMMAND --help` explains a command.");
  app.require_subcommand(1);
  app.fallthrough();  // lets the options below follow the command too
  Flags flags;
  app.add_option("--server,-s", flags.server.address, "host:port of any rank")->capture_default_str();
  app.add_option("--timeout", flags.server.timeout,
                 "seconds to wait for an answer; rows and checkpoints take what they need")
      ->check(Seconds(0.001, kMostSeconds))
      ->capture_default_str();
  slotwise::Credentials& credentials = flags.server.credentials;
  const auto add_file = [&app](const char* flag, std::string& path, const char* variable, const char* help) {
    app.add_option(flag, path, help)->envname(variable)->type_name("FILE");
  };
  add_file("--token-file", credentials.token_file, "SLOTWISE_TOKEN_FILE", "the bearer token");
  add_file("--ca-file", credentials.ca_file, "SLOTWISE_CA_FILE",
           "authorities of the server's certificate, in PEM: all connections are by TLS");
  add_file("--certificate-file", credentials.certificate_file, "SLOTWISE_CERTIFICATE_FILE",
           "a certificate of our own, in PEM, for servers that ask for one");
  add_file("--key-file", credentials.key_file, "SLOTWISE_KEY_FILE", "its key, in PEM");
  app.add_option("--server-name", credentials.server_name,
                 "the name in the server's certificate, where it is not the address's")
      ->envname("SLOTWISE_SERVER_NAME");
  app.add_flag("--insecure", credentials.insecure, "let the token travel unencrypted to other hosts")
      ->envname("SLOTWISE_INSECURE");
  app.add_flag("--json", flags.json, "write JSON");
  Command chosen;
  const Commands commands(app, flags, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return Run(flags, chosen);
  } catch (const std::exception& error) {  // for example from a file system, or for lack of memory
    return Refuse(flags, "INTERNAL", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  slotwise::StandardOutput output;
  const int code = Main(argc, argv);
  return output.ExitCode("slotwise-ctl", code);
}
