#include "bench/peers/redis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace slotwise::bench {
namespace {

// Returns the output of a command, or nothing if the command cannot run.
std::string OutputOf(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor): its words are ours
  if (pipe == nullptr) return {};
  std::string output;
  std::array<char, 4096> piece;
  while (const std::size_t size = fread(piece.data(), 1, piece.size(), pipe))
    output.append(piece.data(), size);
  pclose(pipe);
  return output;
}

int FreePort() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(socket_fd, generic, size) == 0 && getsockname(socket_fd, generic, &size) == 0;
  close(socket_fd);
  if (!bound) throw std::runtime_error("there is no free port for redis-server");
  return ntohs(address.sin_port);
}

pid_t Spawn(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1 /* O_WRONLY */, 0);
  const int error = posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? process : -1;
}

// The format in which redis-benchmark writes __rand_int__.
constexpr const char* kKey = "key:%012d";

}  // namespace

std::unique_ptr<RedisPeer> RedisPeer::Start(const Options& options, std::string& why_not) {
  for (const std::string program : {"redis-server", "redis-benchmark", "redis-cli"}) {
    const std::string find = "command -v " + program + " > /dev/null 2>&1";
    if (std::system(find.c_str()) != 0) {  // NOLINT(bugprone-command-processor): its words are ours
      why_not = program + " is not installed";
      return nullptr;
    }
  }
  std::unique_ptr<RedisPeer> peer(new RedisPeer(options));
  peer->port_ = FreePort();
  peer->server_ = Spawn({"redis-server", "--bind", "127.0.0.1", "--port", std::to_string(peer->port_),
                         "--save", "", "--appendonly", "no", "--daemonize", "no"});
  const std::string cli = "redis-cli -p " + std::to_string(peer->port_) + " ";
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (OutputOf(cli + "ping 2> /dev/null").find("PONG") != 0) {
    if (std::chrono::steady_clock::now() > give_up) throw std::runtime_error("redis-server does not answer");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::string rows = std::to_string(options.rows);
  const std::string bytes = std::to_string(options.row_bytes);
  OutputOf(cli + "eval \"for i = 0, " + rows + " - 1 do redis.call('SET', string.format('" + kKey +
           "', i), string.rep('x', " + bytes + ")) end\" 0");
  std::array<char, 32> last;
  std::snprintf(last.data(), last.size(), kKey, static_cast<int>(options.rows) - 1);
  if (OutputOf(cli + "dbsize") != rows + "\n" || OutputOf(cli + "strlen " + last.data()) != bytes + "\n") {
    throw std::runtime_error("redis-server does not hold the rows that it was given");
  }
  return peer;
}

RedisPeer::~RedisPeer() {
  if (server_ <= 0) return;
  kill(server_, SIGTERM);
  waitpid(server_, nullptr, 0);
}

double RedisPeer::Fetch(double rows, bool fixed_keys) {
  const auto requests = static_cast<std::uint64_t>(std::ceil(rows / options_.keys_a_request));
  std::string command = "redis-benchmark --csv -p " + std::to_string(port_) + " -c " +
                        std::to_string(options_.connections) + " -P " + std::to_string(options_.pipeline) +
                        " -n " + std::to_string(requests);
  command += fixed_keys ? " mget" : " -r " + std::to_string(options_.rows) + " mget";
  std::array<char, 32> key{"key:__rand_int__"};
  for (std::uint32_t i = 0; i < options_.keys_a_request; ++i) {
    if (fixed_keys) std::snprintf(key.data(), key.size(), kKey, static_cast<int>(i % options_.rows));
    command.append(" ").append(key.data());
  }
  // The first line is "test","rps",...; the second has the command and its numbers, each in quotes.
  const std::string output = OutputOf(command + " 2> /dev/null");
  const std::string end_of_command = std::string(key.data()) + "\",\"";
  const auto place = output.rfind(end_of_command);
  const double per_second =
      place == std::string::npos ? 0 : std::strtod(output.c_str() + place + end_of_command.size(), nullptr);
  if (!(per_second > 0)) throw std::runtime_error("redis-benchmark says no rate: " + output);
  return rows / options_.keys_a_request / per_second;
}

double RedisPeer::CpuSeconds() const {
  rusage clients{};
  getrusage(RUSAGE_CHILDREN, &clients);
  // The file has the program's name in brackets, the state and then numbers, of which the 11th and the 12th
  // are user and system time.
  std::ifstream file("/proc/" + std::to_string(server_) + "/stat");
  std::string word;
  while (file >> word && !word.ends_with(')')) continue;
  double ticks = 0;
  for (int field = 3; field <= 15 && file >> word; ++field) {
    if (field >= 14) ticks += std::strtod(word.c_str(), nullptr);
  }
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(clients.ru_utime) + seconds(clients.ru_stime) +
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string RedisPeer::description() const {
  const std::string version = OutputOf("redis-server --version");
  const auto begin = version.find("v=");
  return "Redis " + version.substr(begin == std::string::npos ? 0 : begin + 2, 6) + ", MGET of " +
         std::to_string(options_.keys_a_request) + " x " + std::to_string(options_.row_bytes) + " B, " +
         std::to_string(options_.connections) + " connections, " + std::to_string(options_.pipeline) +
         " pipelined";
}

}  // namespace slotwise::bench
