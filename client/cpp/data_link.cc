#include "client/cpp/data_link.h"

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <limits>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/cpp/data_call.h"
#include "client/cpp/data_connecting.h"
#include "client/cpp/data_stream.h"
#include "client/cpp/from_grpc.h"
#include "wire/busy_polling.h"
#include "wire/frame_stream.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// If a call that was given up is still on its way after this long, the connection is given up, too.
constexpr std::chrono::seconds kStuckLimit{1};

}  // namespace

class DataLink::Impl final : public DataStream::Owner, public std::enable_shared_from_this<Impl> {
 public:
  Impl(BusyPolling& loop, RankAddress address, std::shared_ptr<Access> access)
      : loop_(loop),
        context_(loop.context()),
        address_(std::move(address)),
        access_(std::move(access)),
        timer_(loop.context()) {}

  std::uint64_t Send(std::shared_ptr<DataExchange> exchange, const Sending& how, Done done) {
    std::uint64_t id = 0;
    std::shared_ptr<DataStream> stream;
    {
      const std::lock_guard lock(mutex_);
      id = ++last_id_;
      stream = stream_;
      const auto call = calls_
                            .emplace(id, Pending{.exchange = std::move(exchange),
                                                 .done = std::move(done),
                                                 .deadline = how.deadline,
                                                 .traceparent = how.traceparent,
                                                 .request = stream == nullptr ? Pending::Request::kWaiting
                                                                              : Pending::Request::kNext})
                            .first;
      try {
        call->second.watch = Watch(how.deadline, id);
      } catch (...) {  // there is no memory; the exception tells the caller
        calls_.erase(call);
        throw;
      }
      if (stream == nullptr) ConnectLocked();
    }
    if (stream != nullptr) Write(stream, id);
    return id;
  }

  void Cancel(std::uint64_t id) {
    asio::post(context_, [self = shared_from_this(), id] { self->GiveUp(id, Cancelled("CANCELLED")); });
  }

  bool connected() {
    const std::lock_guard lock(mutex_);
    return stream_ != nullptr;
  }

  void Connect() {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) ConnectLocked();
  }

  void Close() {
    asio::post(context_, [self = shared_from_this()] {
      self->timer_.cancel();
      self->closed_ = true;
      std::shared_ptr<DataStream> stream;
      {
        const std::lock_guard lock(self->mutex_);
        stream = self->stream_;
      }
      if (self->connecting_) self->connecting_->Fail("the client is closed");
      if (stream) stream->End("the client is closed");
    });
  }

 private:
  using Calls = std::unordered_map<std::uint64_t, Pending>;

  void ConnectLocked() {
    if (std::exchange(connect_asked_, true)) return;
    asio::post(context_, [self = shared_from_this()] {
      self->connecting_ = std::make_shared<DataConnecting>(
          self->context_, self->address_, [self](Result<DataConnecting::Made> made) {
            made.ok() ? self->Connected(std::make_shared<DataStream>(std::move(*made), self))
                      : self->NotConnected(made.status());
          });
      self->connecting_->Begin();
    });
  }

  void Connected(const std::shared_ptr<DataStream>& stream) {
    const std::vector<std::uint64_t> waiting = EndConnecting(stream);
    stream->Start();
    if (closed_) stream->End("the client is closed");
    for (const std::uint64_t id : waiting) Write(stream, id);
  }

  void NotConnected(const Status& why) {
    const Status status = why.InWords("cannot connect: " + why.message());
    for (const std::uint64_t id : EndConnecting(nullptr)) GiveUp(id, status);
  }

  // Returns the calls that have waited for a connection, in their order. `stream`: null if there is none.
  std::vector<std::uint64_t> EndConnecting(std::shared_ptr<DataStream> stream) {
    connecting_.reset();
    std::vector<std::uint64_t> waiting;
    const std::lock_guard lock(mutex_);
    connect_asked_ = false;
    for (auto& [id, call] : calls_) {
      if (call.request != Pending::Request::kWaiting) continue;
      waiting.push_back(id);
      if (stream != nullptr) call.request = Pending::Request::kNext;
    }
    stream_ = std::move(stream);
    std::ranges::sort(waiting);
    return waiting;
  }

  // Changes the state of a call by `event`, unless the call is over. After a call has a connection, every
  // change of its state goes through here.
  template <class Event>
  void MoveOn(std::uint64_t id, const Event& event) {
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(id);
    if (call == calls_.end()) return;
    event(call->second);
    EndIfOver(call);
  }

  // Returns whether calls go by the memory of a GPU.
  bool PollsBusily() const { return address_.by_gpu && address_.gpu != kHostMemory; }

  // A call whose message is written. The copy of its arrays on a device may not be done yet.
  struct Written {
    std::shared_ptr<DataStream> stream;
    std::uint64_t id = 0;
    std::shared_ptr<DataExchange> exchange = nullptr;
    steady_clock::time_point deadline = {};
    v1::DataCall head = {};
    OutgoingFrame frame = {};
  };

  // REQUIRES: no other thread writes this call.
  void Write(const std::shared_ptr<DataStream>& stream, std::uint64_t id) {
    const auto written = std::make_shared<Written>(Written{.stream = stream, .id = id});
    MoveOn(id, [&written](Pending& call) {
      call.request = Pending::Request::kWriting;
      written->exchange = call.exchange;
      written->deadline = call.deadline;
      written->head.set_traceparent(call.traceparent);
    });
    if (written->exchange == nullptr) return;  // the call was given up
    // The answer comes soon; the thread that reads it wakes up meanwhile.
    if (PollsBusily()) loop_.Wake(kBusyPollingTime);
    DataExchange& exchange = *written->exchange;
    Status status;
    try {
      exchange.Write(written->head, written->frame.body);
      status = stream->UseSharedBuffer(id, exchange, written->head, written->frame);
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("there is no memory for a request").Because(Reason::kNoMemory);
    }
    const bool on_device = exchange.on_device() != nullptr;
    MoveOn(id, [&](Pending& call) {
      call.request = !status.ok() ? Pending::Request::kLetGo
                     : on_device  ? Pending::Request::kCopying
                                  : Pending::Request::kSending;
      if (!status.ok()) call.Refuse(status);
    });
    if (!status.ok()) return;
    if (!on_device) return Send(*written);
    WhenPassed(
        loop_, exchange.on_device()->carried->there,
        [self = shared_from_this(), written](Status there) { self->Copied(written, std::move(there)); });
  }

  // Called when a call's arrays are in the device's memory. Sends the call, perhaps after the call before it.
  void Copied(const std::shared_ptr<Written>& written, Status there) {
    const std::shared_ptr<Turn> behind = written->exchange->on_device()->behind;
    bool goes_on = false;
    MoveOn(written->id, [&](Pending& call) {
      goes_on = there.ok() && !call.has_outcome();
      call.request = !goes_on            ? Pending::Request::kLetGo
                     : behind != nullptr ? Pending::Request::kBehind
                                         : Pending::Request::kSending;
      if (goes_on) return;
      written->stream->Drop(written->id);
      call.Refuse(std::move(there));
    });
    if (!goes_on) return;
    if (behind == nullptr) return Send(*written);
    behind->Await([self = shared_from_this(), written](bool well) {
      asio::post(self->context_, [self, written, well] { self->OnTurn(*written, well); });
    });
  }

  // Called when the call before this one has ended.
  void OnTurn(Written& written, bool well) {
    bool sends = false;
    MoveOn(written.id, [&](Pending& call) {
      sends = well;
      call.request = well ? Pending::Request::kSending : Pending::Request::kLetGo;
      if (!well) {
        call.Refuse({StatusCode::kCancelled, "the push that this call comes behind has failed"});
      }
    });
    if (!sends) return written.stream->Drop(written.id);
    if (PollsBusily()) loop_.Wake(kBusyPollingTime);
    Send(written);
  }

  void Send(Written& written) {
    v1::DataCall& head = written.head;
    head.set_id(written.id);
    if (address_.only_user) head.set_token(access_->BareToken());
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(written.deadline - steady_clock::now()).count();
    head.set_timeout_ms(static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(left, 1, std::numeric_limits<std::uint32_t>::max())));
    OutgoingFrame& frame = written.frame;
    frame.head = head.SerializeAsString();
    frame.keeps = written.exchange;
    frame.done = [self = shared_from_this(), id = written.id, sent_to = written.stream.get()] {
      self->MoveOn(id, [&](Pending& call) {
        call.request = Pending::Request::kLetGo;
        // The connection was lost before the stream got this call.
        if (self->stream_.get() != sent_to) call.Conclude(Unavailable("the connection was lost"));
      });
    };
    written.stream->Send(std::move(frame));
  }

  FrameStream::Room RoomFor(DataStream& stream, const v1::DataReply& reply,
                            std::uint64_t body_bytes) override {
    std::shared_ptr<DataExchange> exchange;
    MoveOn(reply.id(), [&](Pending& call) {
      if (call.has_outcome() || reply.code() != 0) return;
      call.reply = Pending::Reply::kReading;
      exchange = call.exchange;
    });
    if (exchange == nullptr) return {.skip = true};
    auto room = stream.MakeRoom(*exchange, reply, body_bytes);
    if (room.ok()) return std::move(*room);
    MoveOn(reply.id(), [&room](Pending& call) {
      call.EndReading();
      const bool may_help = room.status().code() == StatusCode::kUnavailable;  // the run may send it again
      may_help ? call.Conclude(room.status()) : call.Refuse(room.status());
    });
    return {.skip = true};
  }

  void Answered(const v1::DataReply& reply) override {
    if (PollsBusily()) loop_.Relax();
    std::shared_ptr<DataExchange> exchange;
    MoveOn(reply.id(), [&](Pending& call) {
      if (!call.is_being_read()) return call.Conclude(AnswerOf(reply, address_.address));
      if (!call.has_outcome()) exchange = call.exchange;
    });
    Status read = exchange == nullptr ? Status() : exchange->Read(reply);
    MoveOn(reply.id(), [&](Pending& call) {
      if (!call.is_being_read()) return;
      call.EndReading();
      call.Conclude(Status(), std::move(read));
    });
  }

  void Lost(const DataStream& stream, const std::string& why) override {
    std::vector<std::uint64_t> lost;
    {
      const std::lock_guard lock(mutex_);
      if (stream_.get() != &stream) return;
      stream_.reset();
      // Calls that wait for the next connection had nothing on the lost one.
      for (const auto& [id, call] : calls_) {
        if (call.request != Pending::Request::kWaiting) lost.push_back(id);
      }
    }
    for (const std::uint64_t id : lost) {
      MoveOn(id, [](Pending& call) { call.EndReading(); });
      GiveUp(id, Unavailable("the connection was lost: " + why));
    }
  }

  // Gives a call up with `status`; the call ends once it is not on its way. Runs in the io_context's thread.
  void GiveUp(std::uint64_t id, const Status& status) {
    MoveOn(id, [&](Pending& call) {
      call.Conclude(status);
      if (call.watch) deadlines_.erase(*std::exchange(call.watch, std::nullopt));
      if (call.is_on_its_way()) call.watch = Watch(steady_clock::now() + kStuckLimit, id);
    });
  }

  // Posts the callback, because a callback must not run with the lock held. REQUIRES: mutex_ is held.
  void EndIfOver(Calls::iterator call) {
    Pending& pending = call->second;
    if (!pending.is_over()) return;
    if (pending.watch) deadlines_.erase(*pending.watch);
    asio::post(context_, [done = std::move(pending.done), answer = std::move(pending.outcome),
                          read = std::move(pending.read), exchange = std::move(pending.exchange)]() mutable {
      exchange.reset();
      done(answer, [&read] { return read; });
    });
    calls_.erase(call);
  }

  // REQUIRES: mutex_ is held.
  Deadlines::iterator Watch(steady_clock::time_point when, std::uint64_t id) {
    if (when < timer_at_) {
      timer_at_ = when;
      asio::post(context_, [self = shared_from_this()] { self->SetTimer(); });
    }
    return deadlines_.emplace(when, id);
  }

  void SetTimer() {
    if (closed_) return;
    {
      const std::lock_guard lock(mutex_);
      timer_at_ = deadlines_.empty() ? steady_clock::time_point::max() : deadlines_.begin()->first;
      if (deadlines_.empty()) return;
      timer_.expires_at(timer_at_);
    }
    timer_.async_wait([weak = weak_from_this()](const asio::error_code& error) {
      if (error) return;
      if (const auto self = weak.lock()) self->OnTimer();
    });
  }

  void OnTimer() {
    std::vector<std::uint64_t> due;
    std::shared_ptr<DataStream> stuck;
    {
      const std::lock_guard lock(mutex_);
      const auto now = steady_clock::now();
      while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        const std::uint64_t id = deadlines_.begin()->second;
        deadlines_.erase(deadlines_.begin());
        const auto call = calls_.find(id);
        call->second.watch.reset();
        if (call->second.has_outcome()) {
          stuck = stream_;
        } else {
          due.push_back(id);
        }
      }
    }
    if (stuck) stuck->End("bytes of a call that was given up were stuck");
    // gRPC uses these words when a client's own clock ends a call.
    const Status late = DeadlineExceeded("Deadline Exceeded").Because(Reason::kNone);
    for (const std::uint64_t id : due) GiveUp(id, late);
    SetTimer();
  }

  BusyPolling& loop_;
  asio::io_context& context_;  // the loop's
  const RankAddress address_;
  const std::shared_ptr<Access> access_;
  // The io_context's thread's:
  asio::steady_timer timer_;
  std::shared_ptr<DataConnecting> connecting_;
  bool closed_ = false;

  std::mutex mutex_;
  // Guarded by mutex_:
  bool connect_asked_ = false;
  std::shared_ptr<DataStream> stream_;
  Calls calls_;
  Deadlines deadlines_;  // of calls; or when a stuck call ends the connection
  steady_clock::time_point timer_at_ =
      steady_clock::time_point::max();  // when SetTimer is next due at the latest
  std::uint64_t last_id_ = 0;
};

DataLink::DataLink(DataThreads& threads, RankAddress address, std::shared_ptr<Access> access)
    : impl_(std::make_shared<Impl>(threads.Next(), std::move(address), std::move(access))) {}
DataLink::~DataLink() { impl_->Close(); }

Transport::Cancel DataLink::Send(std::shared_ptr<Exchange> exchange, const Sending& how, Done done) {
  DataExchange* const data = exchange->data();
  const std::uint64_t call = impl_->Send({std::move(exchange), data}, how, std::move(done));
  return [impl = impl_.get(), call] { impl->Cancel(call); };
}
bool DataLink::connected() const { return impl_->connected(); }
void DataLink::Connect() { impl_->Connect(); }
void DataLink::Close() { impl_->Close(); }

}  // namespace slotwise::client
