// The peer PyTorch: an EmbeddingBag in a Python process of its own, asked for one run at a time, so that its runs and
// ours can take turns.
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
  // Hands torch_embedding.py the options and the rows of the batch. Null, and why, if that Python has no PyTorch.
  static std::unique_ptr<TorchPeer> Start(const std::string& python, const nlohmann::json& options,
                                          std::span<const std::uint32_t> rows, std::string& why_not);
  ~TorchPeer();
  TorchPeer(const TorchPeer&) = delete;
  TorchPeer& operator=(const TorchPeer&) = delete;

  // Seconds of one run, by the process's own clock. Throw std::runtime_error if it does not answer.
  double Lookup() { return Ask("lookup"); }
  double Step() { return Ask("step"); }

  // Whether PyTorch has the optimizer for sparse gradients.
  bool has_step() const { return ready_.at("has_step").get<bool>(); }
  std::string description() const { return ready_.at("description").get<std::string>(); }

 private:
  TorchPeer() = default;
  double Ask(const std::string& command);
  // The next line that the process writes, as JSON; null if it ended.
  nlohmann::json Answer();

  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  nlohmann::json ready_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_TORCH_H_
