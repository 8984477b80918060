// SharedBufferClient: a simulated client of the data transport whose calls' arrays lie in a shared buffer.
//
// It has several calls in flight, each in a slot of the shared buffer, and reuses a slot as soon as its call
// is answered. A rewriting client changes the arrays of its calls at any moment, even while the server reads
// them. A lying client names places that overlap, cover arrays, or lie outside its shared buffer. The client
// knows what it wrote to its memory, so it detects every byte that the server writes.
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
  std::vector<Ask> asks;                       // the asks that the server must find in the body
  std::vector<std::vector<std::byte>> bodies;  // bodies that the client writes in turn, that of `asks` first
  std::size_t slot = 0;
  bool rewritten = false;            // other bodies were written since the call began
  bool breaks_protocol = false;      // the server must end the connection
  bool handled = false;              // by the server, though the client has no answer yet
  std::vector<std::byte> seen = {};  // its body in the shared buffer just before the server handled it
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

  // Begins a call if a slot is free. `names[i]` is the name of ask i's table.
  bool Begin(std::vector<Ask> asks, std::span<const std::string> names, bool many);
  // Returns the first call that was not sent; null if all were sent.
  SharedBufferCall* Unsent();
  // Sends half of that call's frame, or the rest. The server allows `most_calls` in flight.
  void Send(std::size_t most_calls, bool half);
  // Takes in the server's bytes. Returns whether any came.
  bool Receive();
  std::deque<Answer>& answers() { return answers_; }  // received, and not yet processed
  // Returns the first answer to a call of that id; null if there is none.
  const Answer* AnswerTo(std::uint64_t id) const;
  // Returns the oldest call of that id that waits for an answer; null if there is none.
  SharedBufferCall* CallOf(std::uint64_t id);

  // If this client rewrites, changes the arrays of a call that is not answered.
  void Rewrite();
  // Copies the call's body out of the shared buffer into `seen`.
  void NoteSeen(SharedBufferCall& call) const;
  // Returns the place where the server may write values until the call is answered.
  std::span<std::byte> ValuesOf(const SharedBufferCall& call) const;
  // Ends the call, and overwrites its whole slot.
  void Reuse(SharedBufferCall& call);
  // Accepts the server's writes of a call's values as expected memory.
  void KeepValues(const SharedBufferCall& call);

  // Drops unsent frames and hangs up. `in_transit` is a call that was sent and that the server will still
  // handle; null if there is none.
  void Leave(const SharedBufferCall* in_transit);
  void HangUp();
  bool left() const { return left_; }
  // The server's end is closed (ended); later the server has released the whole connection (gone).
  bool ended = false;
  bool gone = false;

  // Returns where the memory differs from its required contents; empty: nowhere.
  std::string CheckMemory();

 private:
  // Checks that the server has released the memory.
  std::string CheckTakenBack() const;

  static constexpr std::size_t kSlots = 6;
  static constexpr std::uint64_t kSlotBytes = 16 << 10;  // for bodies, and as many for values

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
  std::list<SharedBufferCall> calls_;  // in the order of their begin
  std::uint64_t ids_ = 0;
  std::string frame_;  // of the call being sent; empty if there is none
  std::size_t sent_ = 0;
  std::string received_;
  std::deque<Answer> answers_;
  std::vector<std::byte> written_;  // the required memory, up to the last byte that was touched
  bool left_ = false;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SHARED_BUFFER_CLIENT_H_
