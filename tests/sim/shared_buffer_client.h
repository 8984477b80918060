// SharedBufferClient: a simulated client of the data transport whose calls' arrays lie in a shared buffer.
//
// It has several calls under way, each in a slot of the shared buffer, and uses a slot again as soon as its
// call is answered. One that rewrites changes the arrays of its calls at any moment, also while the server
// reads them. One that lies names places that overlap, lie on top of arrays, or lie outside of its shared
// buffer. The client knows what it wrote to its memory, so it sees every byte that the server writes.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_SHARED_BUFFER_CLIENT_H_
#define SLOTWISE_TESTS_SIM_SHARED_BUFFER_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slotwise/v1/data.pb.h"
#include "tests/sim/call_bytes.h"
#include "tests/sim/data_port.h"
#include "tests/sim/journal.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

enum class Manner { kHonest, kRewrites, kLies };

struct SharedBufferCall {
  v1::DataCall head;
  std::vector<Ask> asks;                       // what the server has to find in the body
  std::vector<std::vector<std::byte>> bodies;  // that its client writes, by turns; the asks' first
  std::size_t slot = 0;
  bool rewritten = false;            // the shared buffer had more than the first body since the call began
  bool breaks_protocol = false;      // the server has to end the connection
  bool handled = false;              // by the server, which has not answered it, as far as the client knows
  std::vector<std::byte> seen = {};  // its body in the shared buffer when the server was about to handle it
  std::vector<Sent*> sents = {};     // the engine's requests
  std::vector<std::optional<Status>> refused = {};  // how each was refused at once, if it was

  std::span<Sent* const> requests() const { return sents; }
};

class SharedBufferClient {
 public:
  struct Answer {
    v1::DataReply head;
    std::vector<std::byte> body;
  };

  SharedBufferClient(std::string name, Manner manner, bool on_device, PortConnection connection,
                     std::uint64_t seed);
  ~SharedBufferClient();
  SharedBufferClient(const SharedBufferClient&) = delete;
  SharedBufferClient& operator=(const SharedBufferClient&) = delete;

  const std::string& name() const { return name_; }
  Manner manner() const { return manner_; }
  bool on_device() const { return on_device_; }
  const PortConnection& connection() const { return connection_; }
  std::list<SharedBufferCall>& calls() { return calls_; }

  // Begins a call, if there is a slot for it. `names[i]`: of the table that ask i is of.
  bool Begin(std::vector<Ask> asks, std::span<const std::string> names, bool many);
  // The first call that was not sent; null: all were.
  SharedBufferCall* Unsent();
  // Sends half of that call's frame, or the rest of it. `most_calls`: that the server lets be under way.
  void Send(std::size_t most_calls, bool half);
  // Takes in what the server has sent. Returns whether anything came.
  bool Receive();
  std::deque<Answer>& answers() { return answers_; }  // that came, and were not looked at
  // The first of them to a call of that id; null: there is none.
  const Answer* AnswerTo(std::uint64_t id) const;
  // The oldest call of that id that waits for an answer; null: there is none.
  SharedBufferCall* CallOf(std::uint64_t id);

  // Changes the arrays of a call that is not answered, if this client does so.
  void Rewrite();
  // Notes what the shared buffer has at the call's body.
  void NoteSeen(SharedBufferCall& call) const;
  // Where the server may write values until the call is answered.
  std::span<std::byte> ValuesOf(const SharedBufferCall& call) const;
  // The call is over; overwrites all of its slot.
  void Reuse(SharedBufferCall& call);
  // Takes the server's writes of a call for its own.
  void KeepValues(const SharedBufferCall& call);

  // Drops what was not sent, and hangs up. `in_transit`: the server has not handled this call, which was sent
  // and which it will handle yet; null: there is none.
  void Leave(const SharedBufferCall* in_transit);
  void HangUp();
  bool left() const { return left_; }
  // The server's end is closed, and later the server has nothing of the connection any more.
  bool ended = false;
  bool gone = false;

  // Says where the memory is not as it has to be; empty: nowhere.
  std::string CheckMemory();

 private:
  // The server has taken the memory back.
  std::string CheckTakenBack() const;

  static constexpr std::size_t kSlots = 6;
  static constexpr std::uint64_t kSlotBytes = 16 << 10;  // of bodies, and as many of values

  std::uint64_t SlotAt(std::size_t slot) const { return 64 + slot * 2 * kSlotBytes; }
  void Write(std::uint64_t at, std::span<const std::byte> bytes);
  void Scribble(std::uint64_t at, std::uint64_t bytes);
  void AddOtherBodies(SharedBufferCall& call);
  void Lie(SharedBufferCall& call);

  const std::string name_;
  const Manner manner_;
  const bool on_device_;
  PortConnection connection_;
  Random random_;
  std::list<SharedBufferCall> calls_;  // in the order in which they begin
  std::uint64_t ids_ = 0;
  std::string frame_;  // of the call that is being sent; empty: none is
  std::size_t sent_ = 0;
  std::string received_;
  std::deque<Answer> answers_;
  std::vector<std::byte> written_;  // all that the memory has to have, up to the last byte that was touched
  bool left_ = false;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SHARED_BUFFER_CLIENT_H_
