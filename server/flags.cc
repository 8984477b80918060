#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <map>
#include <utility>
#include <vector>

#include "server/ops/host_port.h"
#include "server/ops/logging.h"

namespace slotwise {
namespace {

constexpr char kAbout[] =
    "Slotwise, a parameter server for the embeddings of recommendation models.\n"
    "One process drives one GPU, or a CPU; mpirun starts as many as there are:\n"
    "\n"
    "  slotwise-server                                          one process, defaults\n"
    "  mpirun -n 4 slotwise-server --config server.pbtxt        four on this machine\n"
    "  mpirun --hostfile hosts slotwise-server --config ...     on many\n"
    "\n"
    "SIGTERM or Ctrl-C to any of them finishes what runs and stops all.\n";

constexpr char kMore[] =
    "The configuration is protobuf text format; its fields are documented in "
    "proto/slotwise/v1/config.proto:\n"
    "\n"
    "  listen: \"127.0.0.1:7070\"\n"
    "  tables { name: \"ads\" dim: 16 slots: 26 optimizer { learning_rate: 0.05 adagrad {} } }";

const std::map<std::string, v1::Backend> kBackends{
    {"auto", v1::BACKEND_AUTO}, {"cpu", v1::BACKEND_CPU}, {"cuda", v1::BACKEND_CUDA}};

const std::map<std::string, v1::DurabilityMode> kModes{{"none", v1::DURABILITY_MODE_NONE},
                                                       {"interval", v1::DURABILITY_MODE_INTERVAL},
                                                       {"sync", v1::DURABILITY_MODE_SYNC}};

}  // namespace

std::variant<Flags, int> ParseFlags(int argc, char** argv) {
  Flags flags;
  CLI::App app(kAbout, "slotwise-server");
  app.footer(kMore);
  app.set_version_flag("--version", std::string("slotwise-server ") + SLOTWISE_VERSION);

  const CLI::Validator not_empty(
      [](std::string& text) { return text.empty() ? "the name of the file is empty" : ""; }, "");
  auto* config = app.add_option("--config", flags.config_path, "The configuration file")
                     ->check(not_empty)
                     ->type_name("FILE");
  const CLI::Validator host_port([](std::string& text) { return ParseHostPort(text).status().message(); },
                                 "");
  app.add_option("--listen", flags.listen,
                 "Address of a machine's first process; the others take the ports after it. One that\n"
                 "other machines reach needs TLS and access control, or --insecure. Default 127.0.0.1:7070")
      ->check(host_port)
      ->type_name("HOST:PORT");
  app.add_option(
         "--metrics-listen", flags.metrics_listen,
         "Address where a machine's first process serves its metrics to Prometheus, at /metrics; the\n"
         "others take the ports after it. One that other machines reach needs --insecure. Default: nowhere")
      ->check(host_port)
      ->type_name("HOST:PORT");
  app.add_option("--health-listen", flags.health_listen,
                 "Address where a machine's first process says over HTTP, to anybody, whether it is alive "
                 "(/livez) and\n"
                 "serves (/readyz); the others take the ports after it. Default: nowhere")
      ->check(host_port)
      ->type_name("HOST:PORT");
  app.add_flag(
      "--insecure", flags.insecure,
      "Let --listen and --metrics-listen be addresses that other machines reach, such as 0.0.0.0. All that\n"
      "reach them may read and change all tables: for private networks only");
  app.add_option("--backend", flags.backend,
                 "auto (CUDA if it can be had, else CPU), cpu or cuda. Default auto")
      ->transform(CLI::CheckedTransformer(kBackends).description(""))
      ->type_name("BACKEND");
  app.add_option(
         "--threads", flags.threads,
         "CPU threads of a process for tables. Default 0: all processors, shared among a machine's processes")
      ->check(CLI::Range(0, 4096).description(""))
      ->type_name("N");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning or error. Default info")
      ->check(CLI::IsMember(std::vector<std::string>(kLogLevels.begin(), kLogLevels.end())).description(""))
      ->type_name("LEVEL");
  app.add_option(
         "--data", flags.data,
         "A folder that every rank sees: what is kept there outlives the server, and a server that starts\n"
         "goes on from it. Default: nothing is kept")
      ->type_name("FOLDER");
  app.add_option(
         "--durability", flags.durability,
         "What becomes of acknowledged updates in a crash: none (those since the last checkpoint are lost),\n"
         "interval (those of the last 30 s may be, or of durability.interval_s), or sync (none is lost:\n"
         "they are on disk first). Default none")
      ->transform(CLI::CheckedTransformer(kModes).description(""))
      ->type_name("MODE");
  app.add_flag("--attached", flags.attached,
               "For a program that starts the server for itself, with pipes: once all ranks serve, write\n"
               "\"serving ADDRESS...\" to standard output; stop when standard input ends");
  app.add_flag("--check-config", flags.check_config,
               "Read the configuration, say whether it is right, and exit")
      ->needs(config);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return flags;
}

Config ReadConfig(const Flags& flags, ConfigErrors& errors) {
  using Values = v1::ServerConfig;
  std::vector<FieldFlag> given;
  const std::optional<bool> insecure = flags.insecure ? std::optional(true) : std::nullopt;
  const auto add = [&given](const char* flag, ConfigPath path, const auto& value, auto set) {
    if (value)
      given.push_back({flag, std::move(path), [&value, set](Values& values) { set(values, *value); }});
  };
  const auto of_durability = [](int field) { return ConfigPath{{Values::kDurabilityFieldNumber}, {field}}; };
  add("--listen", {{Values::kListenFieldNumber}}, flags.listen,
      [](Values& to, const std::string& value) { to.set_listen(value); });
  add("--metrics-listen", {{Values::kMetricsListenFieldNumber}}, flags.metrics_listen,
      [](Values& to, const std::string& value) { to.set_metrics_listen(value); });
  add("--health-listen", {{Values::kHealthListenFieldNumber}}, flags.health_listen,
      [](Values& to, const std::string& value) { to.set_health_listen(value); });
  add("--insecure", {{Values::kInsecureFieldNumber}}, insecure,
      [](Values& to, bool value) { to.set_insecure(value); });
  add("--backend", {{Values::kBackendFieldNumber}}, flags.backend,
      [](Values& to, v1::Backend value) { to.set_backend(value); });
  add("--threads", {{Values::kThreadsFieldNumber}}, flags.threads,
      [](Values& to, std::uint32_t value) { to.set_threads(value); });
  add("--log-level", {{Values::kLogLevelFieldNumber}}, flags.log_level,
      [](Values& to, const std::string& value) { to.set_log_level(value); });
  add("--data", of_durability(v1::Durability::kFolderFieldNumber), flags.data,
      [](Values& to, const std::string& value) { to.mutable_durability()->set_folder(value); });
  add("--durability", of_durability(v1::Durability::kModeFieldNumber), flags.durability,
      [](Values& to, v1::DurabilityMode value) { to.mutable_durability()->set_mode(value); });
  return ReadConfig(flags.config_path, given, errors);
}

}  // namespace slotwise
