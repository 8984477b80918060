#include "server/launch/launcher.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "server/launch/leftovers.h"

namespace slotwise::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kSweepLimit{60};
constexpr milliseconds kLook{1000};         // the longest between two looks at a process
constexpr milliseconds kLookForRanks{50};   // before the first rank is there
constexpr std::size_t kMostLine = 1 << 20;  // the bytes that are looked at in a line of output
constexpr std::string_view kServing = "serving ";

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string NameOf(int exit_code) {
  if (exit_code <= 128) return "exit code " + std::to_string(exit_code);
  const char* const name = sigabbrev_np(exit_code - 128);
  return "exit code " + std::to_string(exit_code) + (name != nullptr ? std::string(", SIG") + name : "");
}

std::string OwnPath() {
  std::array<char, PATH_MAX> path{};
  return readlink("/proc/self/exe", path.data(), path.size() - 1) > 0 ? path.data() : "slotwise-launch";
}

}  // namespace

int Launcher::Run() {
  if (!lock_.last_holder().empty()) {
    spdlog::warn("{} was held by slotwise-launch on {}, which did not give it back", lock_.folder(),
                 lock_.last_holder());
  }
  for (;;) {
    const auto began = Clock::now();
    RunEnd end{.exit_code = 1};
    const bool swept = Sweep();
    if (stop_.first()) return 0;
    if (swept) end = RunServer();
    last_end_ = Clock::now();
    if (stop_.second()) return 128 + *stop_.second();
    if (stop_.first()) return never_had_ranks_ ? 0 : end.exit_code;
    if (end.exit_code == 0) {
      spdlog::info("the server ended by itself, as one does that was told to: it is not started again");
      return 0;
    }
    if (!WaitToRestart(end, Clock::now() - began)) return stop_.first() ? 0 : end.exit_code;
  }
}

bool Launcher::Sweep() {
  // The old mpirun may run on this machine even if the hostfile does not list it.
  const Swept swept = KillLeftovers(lock_.id(), kSweepLimit);
  if (!swept.killed.empty())
    spdlog::warn("killed what was left of an earlier run: process {}", ListOf(swept.killed));
  if (swept.left.empty()) return options_.hostfile.empty() || SweepHosts();
  spdlog::error("process {} of an earlier run does not end, though killed", ListOf(swept.left));
  return false;
}

bool Launcher::SweepHosts() {
  if (stop_.first()) return false;
  auto sweep = Process::Start(
      {"mpirun", "--hostfile", options_.hostfile, "--map-by", "ppr:1:node", OwnPath(), "--sweep", lock_.id()},
      {});
  if (!sweep.ok()) {
    spdlog::error("{}", sweep.status().message());
    return false;
  }
  const auto deadline = Clock::now() + 2 * kSweepLimit;
  while (!sweep->ExitCode() && Clock::now() < deadline && !stop_.first()) stop_.Wait(-1, kLook);
  if (stop_.first()) return false;
  if (sweep->ExitCode() == 0) return true;
  spdlog::error("cannot say that nothing of an earlier run is left on a host of {}", options_.hostfile);
  return false;
}

std::vector<std::string> Launcher::ServerCommand() const {
  std::vector<std::string> command;
  if (options_.WithMpi()) {
    command = {"mpirun", "-x", std::string(kIdVariable), "-x", std::string(kRankVariable)};
    if (options_.ranks > 0) command.insert(command.end(), {"-n", std::to_string(options_.ranks)});
    if (!options_.hostfile.empty()) command.insert(command.end(), {"--hostfile", options_.hostfile});
    command.insert(command.end(), options_.mpirun_arguments.begin(), options_.mpirun_arguments.end());
  }
  command.insert(command.end(), options_.server.begin(), options_.server.end());
  command.insert(command.end(), {"--data", lock_.folder(), "--attached"});
  return command;
}

RunEnd Launcher::RunServer() {
  line_.clear();
  serving_since_.reset();
  ranks_.reset();
  if (options_.WithMpi()) {
    ranks_.emplace(lock_.id(), lock_.folder(),
                   RankWatch::Limits{.patience = options_.patience, .to_first_rank = options_.rank_limit});
  }
  told_ = killed_ = never_had_ranks_ = seen_stopped_ = false;
  began_ = Clock::now();
  RunEnd end{.exit_code = 1};
  auto server = Process::Start(ServerCommand(), {std::string(kIdVariable) + "=" + lock_.id()});
  if (!server.ok()) {
    spdlog::error("{}", server.status().message());
    return end;
  }
  end.exit_code = Attend(*server, end);
  if (serving_since_) end.served_for = Clock::now() - *serving_since_;
  return end;
}

int Launcher::Attend(Process& server, RunEnd& end) {
  bool has_output = true;
  for (;;) {
    const std::optional<int> exit_code = server.ExitCode();
    has_output = has_output && TakeOutput(server, end);
    if (exit_code) return *exit_code;
    SeeToStops(server);
    SeeToStuck(server, end);
    const bool awaits_ranks = ranks_ && !end.served && !ranks_->has_seen_rank() && !killed_;
    stop_.Wait(has_output ? server.output() : -1, awaits_ranks ? kLookForRanks : kLook);
  }
}

void Launcher::SeeToStops(Process& server) {
  if (stop_.first() && !std::exchange(told_, true)) {
    spdlog::info("SIG{}: the server finishes what runs", sigabbrev_np(*stop_.first()));
    server.EndInput();
    server.Continue();  // a stopped process cannot end
  }
  if (stop_.second() && !killed_) {
    spdlog::warn("SIG{} again: the server is killed", sigabbrev_np(*stop_.second()));
    KillServer(server);
  }
}

// After a stop no server starts, which would sweep; so this sweeps what mpirun leaves behind.
void Launcher::KillServer(Process& server) {
  killed_ = true;
  server.Kill();
  if (stop_.first()) Sweep();
}

void Launcher::SeeToStuck(Process& server, const RunEnd& end) {
  const auto now = Clock::now();
  if (server.stopped() && !std::exchange(seen_stopped_, true))
    spdlog::warn("process {} is stopped: SIGCONT lets it go on", server.id());
  if (!server.stopped()) seen_stopped_ = false;
  if (ranks_ && !killed_) SeeToRanks(server, end);
  if (!end.served && !killed_ && now - began_ >= options_.start_limit) {
    spdlog::error("the server does not serve after {:.2f} s (--start-limit): it is killed",
                  Seconds(options_.start_limit));
    KillServer(server);
  }
}

void Launcher::SeeToRanks(Process& server, const RunEnd& end) {
  const auto help = ranks_->Look(
      {.mpirun_is_stopped = server.stopped(), .serves = end.served, .is_told_to_end = told_}, Clock::now());
  if (help == RankWatch::Help::kContinue) {
    spdlog::warn("mpirun is stopped, and none of its ranks runs here: it gets SIGCONT");
    server.Continue();
  }
  if (help != RankWatch::Help::kKill) return;
  never_had_ranks_ = !ranks_->has_seen_rank();
  if (ranks_->has_seen_rank()) {
    spdlog::error("mpirun has not ended {:.2f} s after its ranks (--patience): it is killed",
                  Seconds(options_.patience));
  } else if (told_) {
    spdlog::error("mpirun has not ended {:.2f} s after the stop, and has no rank (--patience): it is killed",
                  Seconds(options_.patience));
  } else {
    spdlog::error("mpirun has started no rank in {:.2f} s (--rank-limit): it is killed",
                  Seconds(options_.rank_limit));
  }
  KillServer(server);
}

bool Launcher::TakeOutput(Process& server, RunEnd& end) {
  for (;;) {
    const auto text = server.ReadOutput();
    if (!text || text->empty()) return text.has_value();
    line_ += *text;
    TakeLines(end);
  }
}

// The server writes "serving ADDRESS..." once all its ranks serve. All other output is mpirun's.
void Launcher::TakeLines(RunEnd& end) {
  for (std::size_t newline; (newline = line_.find('\n')) != std::string::npos; line_.erase(0, newline + 1)) {
    const std::string line = line_.substr(0, newline);
    if (line.starts_with(kServing)) {
      NoteServing(line.substr(kServing.size()), end);
    } else {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
  }
  if (line_.size() > kMostLine) line_.clear();
}

void Launcher::NoteServing(const std::string& addresses, RunEnd& end) {
  end.served = true;
  serving_since_ = Clock::now();
  if (ranks_) ranks_->Learn();
  if (last_end_) {
    spdlog::info("serving at {} again, after {:.2f} s", addresses, Seconds(*serving_since_ - *last_end_));
  } else {
    spdlog::info("serving at {}", addresses);
  }
}

bool Launcher::WaitToRestart(const RunEnd& end, Clock::duration ran_for) {
  const auto now = Clock::now();
  const auto decision = restarts_.After(end, now);
  const std::string what = "the server ended after " + std::to_string(static_cast<int>(Seconds(ran_for))) +
                           " s with " + NameOf(end.exit_code);
  if (const auto* give_up = std::get_if<GiveUp>(&decision)) {
    spdlog::error("{}, and is not started again: {}", what, give_up->why);
    return false;
  }
  const auto& restart = std::get<Restart>(decision);
  spdlog::error("{}: restart {} of {} within {:.0f} s comes in {:.2f} s", what, restart.number,
                options_.restarts.most, Seconds(options_.restarts.within), Seconds(restart.wait));
  while (!stop_.first() && Clock::now() < now + restart.wait) {
    stop_.Wait(-1, std::chrono::ceil<milliseconds>(now + restart.wait - Clock::now()));
  }
  return !stop_.first();
}

}  // namespace slotwise::launch
