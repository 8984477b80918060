#include "server/launch/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace slotwise::launch {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
  environment.insert(environment.end(), variables.begin(), variables.end());
  return environment;
}

// Sets what a spawned program begins with: its files, and no blocked or ignored signals.
struct Attributes {
  Attributes() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&spawn);
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&spawn, &none);
    posix_spawnattr_setsigdefault(&spawn, &all);
    posix_spawnattr_setflags(&spawn, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  }
  ~Attributes() {
    posix_spawnattr_destroy(&spawn);
    posix_spawn_file_actions_destroy(&files);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t spawn;
};

void Close(int& file) {
  if (file >= 0) close(std::exchange(file, -1));
}

}  // namespace

Result<Process> Process::Start(const std::vector<std::string>& command,
                               const std::vector<std::string>& variables) {
  std::array<int, 2> input{-1, -1};
  std::array<int, 2> output{-1, -1};
  if (pipe2(input.data(), O_CLOEXEC) != 0) return Unavailable(std::string("pipe: ") + std::strerror(errno));
  Process process(-1, input[1], -1);
  if (pipe2(output.data(), O_CLOEXEC) != 0) {
    close(input[0]);
    return Unavailable(std::string("pipe: ") + std::strerror(errno));
  }
  process.output_ = output[0];
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  Attributes attributes;
  posix_spawn_file_actions_adddup2(&attributes.files, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&attributes.files, output[1], STDOUT_FILENO);
  std::vector<std::string> words = command;
  std::vector<std::string> environment = EnvironmentWith(variables);
  const int error = posix_spawnp(&process.id_, words[0].c_str(), &attributes.files, &attributes.spawn,
                                 Pointers(words).data(), Pointers(environment).data());
  close(input[0]);
  close(output[1]);
  if (error != 0) {
    process.id_ = -1;
    return Unavailable(StartError(words[0], error));
  }
  return process;
}

Process::~Process() {
  if (id_ > 0 && !exit_code_) {
    Kill();
    while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Close(input_);
  Close(output_);
}

Process::Process(Process&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      exit_code_(other.exit_code_),
      stopped_(other.stopped_) {}

std::optional<std::string> Process::ReadOutput() {
  std::array<char, 4096> bytes;
  const ssize_t count = read(output_, bytes.data(), bytes.size());
  if (count > 0) return std::string(bytes.data(), static_cast<std::size_t>(count));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::string();
  return std::nullopt;
}

void Process::EndInput() { Close(input_); }

void Process::Kill() {
  if (id_ > 0 && !exit_code_) kill(id_, SIGKILL);
}

void Process::Continue() {
  if (id_ > 0 && !exit_code_) kill(id_, SIGCONT);
}

std::optional<int> Process::ExitCode() {
  int status = 0;
  pid_t changed = 0;
  while (!exit_code_ && (changed = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
    if (changed != id_) continue;
    stopped_ = WIFSTOPPED(status);
    if (WIFSIGNALED(status)) exit_code_ = 128 + WTERMSIG(status);
    if (WIFEXITED(status)) exit_code_ = WEXITSTATUS(status);
  }
  return exit_code_;
}

std::string StartError(const std::string& program, int error) {
  std::string why = "cannot start " + program + ": " + std::strerror(error);
  if (error == EAGAIN) {
    why +=
        ": there are as many processes and threads as this user (ulimit -u) or this container (its pids "
        "limit) "
        "may have";
  }
  return why;
}

}  // namespace slotwise::launch
