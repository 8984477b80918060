// SharedBuffers: the data transport of all simulated ranks, and its clients whose calls' arrays lie in shared
// buffers.
//
// A frame is on its way to a rank at a time, so that it is known which call the server handles; from then on
// calls are under way side by side. What a call may be answered at once is said here, from the bytes that its
// shared buffer had; what its requests have to become is the referee's.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_SHARED_BUFFERS_H_
#define SLOTWISE_TESTS_SIM_SHARED_BUFFERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/data_port.h"
#include "tests/sim/journal.h"
#include "tests/sim/plan.h"
#include "tests/sim/referee.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/shared_buffer_client.h"

namespace slotwise::sim {

// What shared buffers ask of a simulation's ranks.
class SharedBufferRanks {
 public:
  virtual ~SharedBufferRanks() = default;
  // Whether a client's call may reach the rank's engine just now.
  virtual bool MayCall(int rank) const = 0;
  virtual bool IsStopping(int rank) const = 0;
  // A call has reached the engine.
  virtual void Poke(int rank) = 0;

 protected:
  SharedBufferRanks() = default;
};

struct SharedBufferCounts {
  std::uint64_t calls = 0;      // that were handled
  std::uint64_t answered = 0;   // with values, or a step's number
  std::uint64_t refused = 0;    // by what their bytes were
  std::uint64_t rewritten = 0;  // whose bytes changed before they were handled, or as they were
  std::uint64_t cut_off = 0;    // clients, for what they said of places
  std::uint64_t left = 0;       // clients that hung up with calls under way

  void Add(const SharedBufferCounts& other);
};

class SharedBuffers {
 public:
  // The arguments outlive it.
  SharedBuffers(const Plan& plan, Scheduler& scheduler, Journal& journal, Referee& referee,
                SharedBufferRanks& ranks);

  // The rank's engine is there; is about to be destroyed; is gone.
  void OpenPort(int rank, Engine& engine);
  void ClosePort(int rank);
  void EngineIsGone(int rank);

  // A client sends the asks to the rank by a shared buffer, if one can. `tables`: that clients know.
  bool Offer(int rank, const std::map<TableId, TableOptions>& tables, const std::vector<Ask>& asks);

  // Lets something happen, if it is its time.
  void Happen();
  // Nothing else happens. Returns whether something did here.
  bool HappenWhileIdle();
  // Looks at all shared buffers.
  void LookAtMemory();

  const SharedBufferCounts& counts() const { return counts_; }

 private:
  struct Rank {
    Engine* engine = nullptr;
    std::unique_ptr<DataPort> port;
    std::vector<std::unique_ptr<SharedBufferClient>> clients;
    // Of the frame that is on its way:
    SharedBufferClient* sender = nullptr;
    SharedBufferCall* call = nullptr;
    bool half = false;  // of it was sent
    bool closing = false;
  };

  // What a call was as the server handled it.
  struct HandledCall {
    v1::DataCall head;
    std::vector<std::byte> seen;
    std::vector<std::vector<std::byte>> bodies;  // of which its arrays may be a mixture
    std::vector<std::optional<TableInfo>> tables;
  };

  Rank& At(int rank) { return ranks_of_[static_cast<std::size_t>(rank)]; }
  SharedBufferClient* DrawClient(int rank);
  // Returns whether something happened. `all`: clients look at all that has come.
  bool Step(int rank, bool all);
  void SendAFrame(Rank& of);
  void Handled(int rank);
  void ToEngine(int rank, SharedBufferClient& client, SharedBufferCall& call,
                const std::vector<std::optional<TableInfo>>& tables);
  void OnAnswer(SharedBufferClient& client, const SharedBufferClient::Answer& answer);
  void LookForEnds(int rank);
  void Leave(Rank& of, SharedBufferClient& client);
  void RewriteAll();
  static std::string Taken(const HandledCall& call, int message, const Request& request, Ask& ask);
  void Trace(const SharedBufferClient& client, const char* what, std::uint64_t detail);
  bool judging() const { return !scheduler_.failure() && !scheduler_.AnyKilled(); }

  const Plan& plan_;
  Scheduler& scheduler_;
  Journal& journal_;
  Referee& referee_;
  SharedBufferRanks& ranks_;
  Random random_;
  std::vector<Rank> ranks_of_;
  bool handled_ = false;  // the frame on its way, in this poll
  std::uint64_t clients_ = 0;
  SharedBufferCounts counts_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SHARED_BUFFERS_H_
