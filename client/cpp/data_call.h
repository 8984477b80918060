// The calls of a DataLink (data_link.h) that are under way.
// Thread-safety: plain values, which the link's lock guards.
#ifndef SLOTWISE_CLIENT_CPP_DATA_CALL_H_
#define SLOTWISE_CLIENT_CPP_DATA_CALL_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/transport.h"
#include "slotwise/status.h"

namespace slotwise::client {

// Deadline -> id of the call that has to be handled by then.
using Deadlines = std::multimap<std::chrono::steady_clock::time_point, std::uint64_t>;

// A Pending is a call of a link, with its progress. The request and the reply have separate states, because a
// reply or the deadline may come before the stream has released the request:
//
//   kWaiting ─► kNext ─► kWriting ─┬────────────────────────► kSending ─► kLetGo
//                                  └─► kCopying ─► kBehind ───┘
//   kNone ─► kReading ─► kUnwanted ─► kKnown
//
// Either may skip states. A lost connection takes a reply from kReading back to kNone. The call is over once
// it has an outcome and its memory is not in use any more.
struct Pending {
  enum class Request : std::uint8_t {
    kWaiting,  // for a connection
    kNext,     // the connection is there, and the request is about to be written
    kWriting,  // the request is being written
    kCopying,  // a device copies the call's arrays
    kBehind,   // the copy is done; the call waits for the end of the call before it (OnDevice::behind)
    kSending,  // the stream may read its arrays
    kLetGo,    // the stream does not use the arrays any more
  };
  enum class Reply : std::uint8_t {
    kNone,      // the call has no outcome yet
    kReading,   // no outcome yet, and the stream may write into the values' destination
    kUnwanted,  // the stream still may, though the call has an outcome
    kKnown,     // the call has an outcome
  };

  bool has_outcome() const { return reply == Reply::kUnwanted || reply == Reply::kKnown; }
  bool is_being_read() const { return reply == Reply::kReading || reply == Reply::kUnwanted; }
  // Returns whether the end of the connection would end the use of the call's memory.
  bool is_on_its_way() const {
    return request == Request::kWriting || request == Request::kSending || is_being_read();
  }
  bool is_over() const { return has_outcome() && !is_on_its_way() && request != Request::kCopying; }

  // Sets the call's outcome, unless the call has one. `what`: the exchange's status after an OK answer, or an
  // error that must not be retried.
  void Conclude(Status answer, Status what = {}) {
    if (has_outcome()) return;
    outcome = std::move(answer);
    read = std::move(what);
    reply = reply == Reply::kReading ? Reply::kUnwanted : Reply::kKnown;
  }
  // Ends a call with an error that must not be retried, unless the call has an outcome.
  void Refuse(Status why) { Conclude(Status(), std::move(why)); }
  void EndReading() {
    if (is_being_read()) reply = has_outcome() ? Reply::kKnown : Reply::kNone;
  }

  std::shared_ptr<DataExchange> exchange;
  Transport::Done done;
  std::chrono::steady_clock::time_point deadline;
  std::string traceparent;
  Request request = Request::kWaiting;
  Reply reply = Reply::kNone;
  Status outcome = {};
  Status read = {};
  std::optional<Deadlines::iterator> watch = std::nullopt;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_CALL_H_
