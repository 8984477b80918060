// TorchPeer is a PyTorch EmbeddingBag in a Python process of its own. The process does one run at a time, so
// that its runs and ours can take turns.
//
// Thread-safety: one thread at a time. The process ends with the object.
#ifndef SLOTWISE_BENCH_PEERS_TORCH_H_
#define SLOTWISE_BENCH_PEERS_TORCH_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace slotwise::bench {

class TorchPeer {
 public:
  // Sends torch_embedding.py the options and the rows of the batch. Returns null, and sets `why_not`, if
  // `python` has no PyTorch.
  static std::unique_ptr<TorchPeer> Start(const std::string& python, const nlohmann::json& options,
                                          std::span<const std::uint32_t> rows, std::string& why_not);
  ~TorchPeer();
  TorchPeer(const TorchPeer&) = delete;
  TorchPeer& operator=(const TorchPeer&) = delete;

  // Both return the seconds of one run, by the process's own clock. They throw std::runtime_error if the
  // process does not answer.
  double Lookup() { return Ask("lookup"); }
  double Step() { return Ask("step"); }

  // Returns whether PyTorch has the optimizer for sparse gradients.
  bool has_step() const { return ready_.at("has_step").get<bool>(); }
  std::string description() const { return ready_.at("description").get<std::string>(); }

 private:
  TorchPeer() = default;
  double Ask(const std::string& command);
  // Returns the next line that the process writes, as JSON, or null if the process has ended.
  nlohmann::json Answer();

  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  nlohmann::json ready_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_TORCH_H_
