// PythonPeer is a contender in its own Python process, which runs a script of this folder. The process does
// one run at a time, so that its runs and ours can take turns.
//
// Thread-safety: one thread at a time. The process ends with the object.
#ifndef SLOTWISE_BENCH_PEERS_PYTHON_H_
#define SLOTWISE_BENCH_PEERS_PYTHON_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace slotwise::bench {

class PythonPeer {
 public:
  // Starts bench/peers/`script` with `python`, and sends it the options as one line of JSON, then `more`.
  // Returns null and sets `why_not` if the script says that it cannot run.
  static std::unique_ptr<PythonPeer> Start(const std::string& python, const std::string& script,
                                           const nlohmann::json& options, std::span<const std::byte> more,
                                           std::string& why_not);
  ~PythonPeer();
  PythonPeer(const PythonPeer&) = delete;
  PythonPeer& operator=(const PythonPeer&) = delete;

  // Makes one run of the script's benchmark `name`, and returns its seconds by the process's own clock.
  // Throws std::runtime_error if the process does not answer.
  double Run(const std::string& name);

  // Returns the script's message that it is ready.
  const nlohmann::json& ready() const { return ready_; }
  std::string description() const { return ready_.at("description").get<std::string>(); }

 private:
  PythonPeer() = default;
  // Returns the next line of the process as JSON, or null if the process has ended.
  nlohmann::json Answer();

  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  nlohmann::json ready_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_PYTHON_H_
