// SharedBuffers: the data transport of all simulated ranks, and the clients whose arrays lie in shared
// buffers.
//
// Only one frame at a time is on its way to a rank, so that it is known which call the server handles. From
// then on calls run in parallel. This class judges immediate answers to a call, from the bytes in its shared
// buffer; the referee judges the requests.
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

// The simulation's ranks, as SharedBuffers needs them.
class SharedBufferRanks {
 public:
  virtual ~SharedBufferRanks() = default;
  // Returns whether a client's call may reach the rank's engine now.
  virtual bool MayCall(int rank) const = 0;
  virtual bool IsStopping(int rank) const = 0;
  // Tells the rank that a call has reached the engine.
  virtual void Poke(int rank) = 0;

 protected:
  SharedBufferRanks() = default;
};

struct SharedBufferCounts {
  std::uint64_t calls = 0;      // that the server handled
  std::uint64_t answered = 0;   // with values or a step's number
  std::uint64_t refused = 0;    // because of their bytes
  std::uint64_t rewritten = 0;  // whose bytes changed before or while they were handled
  std::uint64_t cut_off = 0;    // clients, because of the places they named
  std::uint64_t left = 0;       // clients that hung up with calls in flight

  void Add(const SharedBufferCounts& other);
};

class SharedBuffers {
 public:
  // REQUIRES: the arguments outlive this.
  SharedBuffers(const Plan& plan, Scheduler& scheduler, Journal& journal, Referee& referee,
                SharedBufferRanks& ranks);

  // Called when the rank's engine exists, before it is destroyed, and after that.
  void OpenPort(int rank, Engine& engine);
  void ClosePort(int rank);
  void EngineIsGone(int rank);

  // Sends the asks to the rank through a shared buffer, if a client can. `tables` are those that clients
  // know.
  bool Offer(int rank, const std::map<TableId, TableOptions>& tables, const std::vector<Ask>& asks);

  // Lets an event happen if it is due.
  void Happen();
  // Called when nothing else happens. Returns whether an event happened here.
  bool HappenWhileIdle();
  // Checks all shared buffers.
  void LookAtMemory();

  const SharedBufferCounts& counts() const { return counts_; }

 private:
  struct Rank {
    Engine* engine = nullptr;
    std::unique_ptr<DataPort> port;
    std::vector<std::unique_ptr<SharedBufferClient>> clients;
    // The fields below are for the frame that is on its way:
    SharedBufferClient* sender = nullptr;
    SharedBufferCall* call = nullptr;
    bool half = false;  // half of it was sent
    bool closing = false;
  };

  // A call at the time when the server handled it.
  struct HandledCall {
    v1::DataCall head;
    std::vector<std::byte> seen;
    std::vector<std::vector<std::byte>> bodies;  // the call's arrays may be a mixture of these
    std::vector<std::optional<TableInfo>> tables;
  };

  Rank& At(int rank) { return ranks_of_[static_cast<std::size_t>(rank)]; }
  SharedBufferClient* DrawClient(int rank);
  // Returns whether an event happened. `all`: clients process all that has come.
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
  bool handled_ = false;  // the frame on its way was handled in this poll
  std::uint64_t clients_ = 0;
  SharedBufferCounts counts_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SHARED_BUFFERS_H_
