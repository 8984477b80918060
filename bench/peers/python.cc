#include "bench/peers/python.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <vector>

// NOLINTNEXTLINE(readability-redundant-declaration): glibc declares it for GNU sources alone
extern char** environ;

namespace slotwise::bench {
namespace {

// Returns the script's path at build time, or else its path in the checkout from which this program starts.
std::string PathOf(const std::string& script) {
  const std::string built_from = std::string(SLOTWISE_PEERS) + "/" + script;
  return std::filesystem::exists(built_from) ? built_from : "bench/peers/" + script;
}

// Starts a process, with pipes to its stdin and from its stdout. Returns -1 if that failed.
pid_t Spawn(const std::string& python, const std::string& script, int& to, int& from) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  std::vector<std::string> words{python, PathOf(script)};
  std::array<char*, 3> arguments{words[0].data(), words[1].data(), nullptr};
  pid_t process = -1;
  if (posix_spawnp(&process, python.c_str(), &files, nullptr, arguments.data(), environ) != 0) process = -1;
  posix_spawn_file_actions_destroy(&files);
  close(in[0]);
  close(out[1]);
  to = in[1];
  from = out[0];
  return process;
}

}  // namespace

std::unique_ptr<PythonPeer> PythonPeer::Start(const std::string& python, const std::string& script,
                                              const nlohmann::json& options, std::span<const std::byte> more,
                                              std::string& why_not) {
  std::signal(SIGPIPE, SIG_IGN);  // the end of the process shows as a missing answer
  std::unique_ptr<PythonPeer> peer(new PythonPeer);
  int to = -1;
  int from = -1;
  peer->process_ = Spawn(python, script, to, from);
  if (to >= 0) peer->to_ = fdopen(to, "w");
  if (from >= 0) peer->from_ = fdopen(from, "r");
  if (peer->process_ < 0 || peer->to_ == nullptr || peer->from_ == nullptr) {
    why_not = "cannot start " + python;
    return nullptr;
  }
  std::fprintf(peer->to_, "%s\n", options.dump().c_str());
  std::fwrite(more.data(), 1, more.size(), peer->to_);
  std::fflush(peer->to_);
  peer->ready_ = peer->Answer();
  if (!peer->ready_.contains("error")) return peer;
  why_not = peer->ready_["error"].get<std::string>();
  return nullptr;
}

PythonPeer::~PythonPeer() {
  if (to_ != nullptr) std::fclose(to_);  // the process ends when its stdin closes
  if (from_ != nullptr) std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

double PythonPeer::Run(const std::string& name) {
  std::fprintf(to_, "%s\n", name.c_str());
  std::fflush(to_);
  const nlohmann::json answer = Answer();
  if (answer.contains("error")) {
    throw std::runtime_error("the Python peer: " + answer["error"].get<std::string>());
  }
  return answer.at("seconds").get<double>();
}

nlohmann::json PythonPeer::Answer() {
  std::string line;
  for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) {
    line += static_cast<char>(c);
  }
  nlohmann::json answer = nlohmann::json::parse(line, nullptr, false);
  if (answer.is_discarded()) answer = {{"error", "it ended, or answered what is no JSON: " + line}};
  return answer;
}

}  // namespace slotwise::bench
