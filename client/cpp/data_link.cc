#include "client/cpp/data_link.h"

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/cpp/arena.h"
#include "client/cpp/data_connecting.h"
#include "client/cpp/from_grpc.h"
#include "wire/brisk_loop.h"
#include "wire/error_details.h"
#include "wire/frame_stream.h"
#include "wire/status_code.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// So long bytes of a call that has been given up may be on their way before the connection is given up, too.
constexpr std::chrono::seconds kStuckLimit{1};
// Calls with fewer bytes, those of their values included, go by the socket.
constexpr std::uint64_t kLeastInArena = 4096;

// By when something has to be done of which call.
using Deadlines = std::multimap<steady_clock::time_point, std::uint64_t>;

// What a link has of a call, and how far the call has come. Its request and its reply have a life each,
// because a reply, or the end of the caller's patience, may come before the stream has let go of the request:
//
//   kWaiting ─► kNext ─► kWriting ─┬────────────────────────► kSending ─► kLetGo
//                                  └─► kCopying ─► kBehind ───┘
//   kNone ─► kReading ─► kUnwanted ─► kKnown
//
// Either may leave out states; a lost connection takes a reply from kReading back to kNone. The call is over
// once it has an outcome and nobody uses its memory.
struct Pending {
  enum class Request : std::uint8_t {
    kWaiting,  // for a connection
    kNext,     // the connection is there, and the request is about to be written
    kWriting,  // it is being written
    kCopying,  // a device copies its arrays
    kBehind,   // they are copied, and the call that it comes behind has not ended
    kSending,  // the stream may read its arrays
    kLetGo,    // nobody does
  };
  enum class Reply : std::uint8_t {
    kNone,      // the call has no outcome yet
    kReading,   // likewise, and the stream may write where the values go
    kUnwanted,  // it still may, though the call has an outcome
    kKnown,     // the call has an outcome
  };

  bool has_outcome() const { return reply == Reply::kUnwanted || reply == Reply::kKnown; }
  bool is_being_read() const { return reply == Reply::kReading || reply == Reply::kUnwanted; }
  // Returns whether the end of the connection would end the use of the call's memory.
  bool is_on_its_way() const {
    return request == Request::kWriting || request == Request::kSending || is_being_read();
  }
  bool is_over() const { return has_outcome() && !is_on_its_way() && request != Request::kCopying; }

  // Sets what became of the call, unless that is known. `what`: what the exchange says of an answer that is
  // OK, or why there is none that could be sent again.
  void Conclude(Status answer, Status what = {}) {
    if (has_outcome()) return;
    outcome = std::move(answer);
    read = std::move(what);
    reply = reply == Reply::kReading ? Reply::kUnwanted : Reply::kKnown;
  }
  // Ends a call, unless it has an outcome, and does not send it again.
  void Refuse(Status why) { Conclude(Status(), std::move(why)); }
  void EndReading() {
    if (is_being_read()) reply = has_outcome() ? Reply::kKnown : Reply::kNone;
  }

  std::shared_ptr<DataExchange> exchange;
  Transport::Done done;
  steady_clock::time_point deadline;
  std::string traceparent;
  Request request = Request::kWaiting;
  Reply reply = Reply::kNone;
  Status outcome = {};
  Status read = {};
  std::optional<Deadlines::iterator> watch = std::nullopt;
};

}  // namespace

class DataThreads::Impl {
 public:
  explicit Impl(int threads) {
    for (int i = 0; i < threads; ++i) {
      Worker& worker = workers_.emplace_back();
      worker.thread = std::thread([&worker] { worker.loop.Run(); });
    }
  }
  ~Impl() {
    for (Worker& worker : workers_) worker.work.reset();
    for (Worker& worker : workers_) worker.thread.join();
  }
  BriskLoop& Next() { return workers_[turn_++ % workers_.size()].loop; }

 private:
  struct Worker {
    BriskLoop loop;
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{
        loop.context().get_executor()};
    std::thread thread;
  };
  std::deque<Worker> workers_;
  std::atomic<std::size_t> turn_ = 0;
};

DataThreads::DataThreads(int threads) : impl_(std::make_unique<Impl>(threads)) {}
DataThreads::~DataThreads() = default;

class DataLink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(BriskLoop& loop, RankAddress address, std::shared_ptr<Access> access)
      : loop_(loop),
        context_(loop.context()),
        address_(std::move(address)),
        access_(std::move(access)),
        timer_(loop.context()) {}

  std::uint64_t Send(std::shared_ptr<DataExchange> exchange, const Sending& how, Done done) {
    std::uint64_t id = 0;
    std::shared_ptr<Stream> stream;
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
      } catch (...) {  // there is no memory: the caller hears that by the exception alone
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
      std::shared_ptr<Stream> stream;
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

  // The connection, once it is made.
  class Stream final : public FrameStream {
   public:
    Stream(DataConnecting::Made made, std::weak_ptr<Impl> link)
        : FrameStream(std::move(made.socket),
                      {.frame_bytes = std::numeric_limits<std::uint64_t>::max() >> 1}),
          link_(std::move(link)) {
      if (made.arena) arena_.emplace(std::move(made.arena));
      gpu_ = std::move(made.gpu);
    }
    using FrameStream::Start;

    // Brings a call's body to the arena, if it is large, there is one, and it has room: then the frame has
    // none. What lies on a device goes by its memory, or not at all.
    Status UseArena(std::uint64_t id, DataExchange& exchange, v1::DataCall& head, OutgoingFrame& frame) {
      const std::uint64_t value_bytes = exchange.ValueBytes();
      std::optional<v1::ArenaPlaces> places;
      if (OnDevice* const of = exchange.on_device()) {
        if (gpu_ == nullptr) return {StatusCode::kInternal, "the connection has no memory of the device"};
        auto there = gpu_->Put(id, frame.body, value_bytes, *of);
        if (!there.ok()) return there.status();
        places = std::move(*there);
      } else if (arena_) {
        std::uint64_t bytes = value_bytes;
        for (const auto& piece : frame.body) bytes += piece.size();
        if (bytes >= kLeastInArena) places = arena_->Put(id, frame.body, value_bytes);
      }
      if (!places) return {};
      *head.mutable_arena() = std::move(*places);
      frame.body.clear();
      return {};
    }
    // Returns whether the arena had a reply's values, which are in `room` then.
    bool TakeFromArena(std::uint64_t id, DataExchange& exchange, const DataExchange::Room& room) const {
      if (exchange.on_device() == nullptr) return arena_ && arena_->Get(id, room);
      if (gpu_ == nullptr) return false;
      exchange.TakeValues(gpu_->TakeValues(id));
      return true;
    }
    // A call that was put into the device's memory is not sent.
    void Drop(std::uint64_t id) const { gpu_->Free(id); }

   private:
    std::optional<Room> OnHead(std::span<const std::byte> head, std::uint64_t body_bytes,
                               std::string& why) override {
      reply_.Clear();
      if (head.size() > std::numeric_limits<int>::max() ||
          !reply_.ParseFromArray(head.data(), static_cast<int>(head.size()))) {
        why = "a frame's head is no DataReply";
        return std::nullopt;
      }
      const auto link = link_.lock();
      if (link == nullptr) {
        why = "the client is closed";
        return std::nullopt;
      }
      return link->RoomFor(*this, reply_, body_bytes);
    }
    bool OnBody() override {
      if (arena_) arena_->Free(reply_.id());
      if (gpu_) gpu_->Free(reply_.id());
      if (const auto link = link_.lock()) link->Answered(reply_);
      return true;
    }
    void OnEnd(const std::string& why, bool /*by_peer*/) override {
      if (gpu_) gpu_->End();
      if (const auto link = link_.lock()) link->Lost(*this, why);
    }

    const std::weak_ptr<Impl> link_;
    std::optional<Arena> arena_;
    std::shared_ptr<GpuArena> gpu_;
    v1::DataReply reply_;
  };

  void ConnectLocked() {
    if (std::exchange(connect_asked_, true)) return;
    asio::post(context_, [self = shared_from_this()] {
      self->connecting_ = std::make_shared<DataConnecting>(
          self->context_, self->address_, [self](Result<DataConnecting::Made> made) {
            made.ok() ? self->Connected(std::make_shared<Stream>(std::move(*made), self))
                      : self->NotConnected(made.status());
          });
      self->connecting_->Begin();
    });
  }

  void Connected(const std::shared_ptr<Stream>& stream) {
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
  std::vector<std::uint64_t> EndConnecting(std::shared_ptr<Stream> stream) {
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

  // Moves a call on, unless it is over: `event` says by what. All that becomes of a call for which there is a
  // connection goes through here.
  template <class Event>
  void MoveOn(std::uint64_t id, const Event& event) {
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(id);
    if (call == calls_.end()) return;
    event(call->second);
    EndIfOver(call);
  }

  // Returns whether calls go by the memory of a GPU.
  bool IsBrisk() const { return address_.by_gpu && address_.gpu != kHostMemory; }

  // A call that could be sent. Its copy on a device may not be done yet.
  struct Written {
    std::shared_ptr<Stream> stream;
    std::uint64_t id = 0;
    std::shared_ptr<DataExchange> exchange = nullptr;
    steady_clock::time_point deadline = {};
    v1::DataCall head = {};
    OutgoingFrame frame = {};
  };

  // REQUIRES: nobody else writes this call.
  void Write(const std::shared_ptr<Stream>& stream, std::uint64_t id) {
    const auto written = std::make_shared<Written>(Written{.stream = stream, .id = id});
    MoveOn(id, [&written](Pending& call) {
      call.request = Pending::Request::kWriting;
      written->exchange = call.exchange;
      written->deadline = call.deadline;
      written->head.set_traceparent(call.traceparent);
    });
    if (written->exchange == nullptr) return;  // it was given up
    // The answer comes soon: whoever reads it is awake by then.
    if (IsBrisk()) loop_.Wake(kBriskTime);
    DataExchange& exchange = *written->exchange;
    Status status;
    try {
      exchange.Write(written->head, written->frame.body);
      status = stream->UseArena(id, exchange, written->head, written->frame);
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

  // A call's arrays are in the device's memory. It is sent now, or behind another call.
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

  // The call before this one has ended.
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
    if (IsBrisk()) loop_.Wake(kBriskTime);
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
        // The connection was lost before this call was given to it.
        if (self->stream_.get() != sent_to) call.Conclude(Unavailable("the connection was lost"));
      });
    };
    written.stream->Send(std::move(frame));
  }

  // Returns what a server's refusal says. A server that is older than reasons has its code's first one.
  Status Refusal(const v1::DataReply& reply) const {
    const Reason said = FromProto(reply.reason());
    return AnswerOf(reply.code(), reply.message(), std::chrono::milliseconds(reply.retry_after_ms()),
                    said == Reason::kNone ? DefaultReason(FromWireCode(reply.code())) : said,
                    address_.address);
  }

  FrameStream::Room RoomFor(Stream& stream, const v1::DataReply& reply, std::uint64_t body_bytes) {
    std::shared_ptr<DataExchange> exchange;
    MoveOn(reply.id(), [&](Pending& call) {
      if (call.has_outcome() || reply.code() != 0) return;
      call.reply = Pending::Reply::kReading;
      exchange = call.exchange;
    });
    FrameStream::Room to{.skip = exchange == nullptr};
    if (to.skip) return to;
    auto room = exchange->MakeRoom(reply);
    std::uint64_t bytes = 0;
    Status refused = room.status();
    const bool there = reply.in_arena() || exchange->on_device() != nullptr;
    if (room.ok() && there) {
      if (body_bytes == 0 && stream.TakeFromArena(reply.id(), *exchange, *room)) return to;
    } else if (room.ok()) {
      for (const auto& piece : *room) {
        bytes += piece.size();
        if (!piece.empty()) to.buffers.emplace_back(piece.data(), piece.size());
      }
      if (bytes == body_bytes) return to;
      refused = {StatusCode::kInternal, "a reply has " + std::to_string(body_bytes) +
                                            " bytes of values, not " + std::to_string(bytes)};
    }
    MoveOn(reply.id(), [&](Pending& call) {
      call.EndReading();
      refused.ok() ? call.Conclude(Unavailable("the server has taken its memory back"))
                   : call.Refuse(std::move(refused));
    });
    return {.skip = true};
  }

  void Answered(const v1::DataReply& reply) {
    if (IsBrisk()) loop_.Relax();
    std::shared_ptr<DataExchange> exchange;
    MoveOn(reply.id(), [&](Pending& call) {
      if (!call.is_being_read()) return call.Conclude(Refusal(reply));
      if (!call.has_outcome()) exchange = call.exchange;
    });
    Status read = exchange == nullptr ? Status() : exchange->Read(reply);
    MoveOn(reply.id(), [&](Pending& call) {
      if (!call.is_being_read()) return;
      call.EndReading();
      call.Conclude(Status(), std::move(read));
    });
  }

  void Lost(const Stream& stream, const std::string& why) {
    std::vector<std::uint64_t> lost;
    {
      const std::lock_guard lock(mutex_);
      if (stream_.get() != &stream) return;
      stream_.reset();
      // Calls that wait for the next connection have nothing on this one.
      for (const auto& [id, call] : calls_) {
        if (call.request != Pending::Request::kWaiting) lost.push_back(id);
      }
    }
    for (const std::uint64_t id : lost) {
      MoveOn(id, [](Pending& call) { call.EndReading(); });
      GiveUp(id, Unavailable("the connection was lost: " + why));
    }
  }

  // Ends a call that is not over, once nothing of it is on its way. The io_context's thread's.
  void GiveUp(std::uint64_t id, const Status& status) {
    MoveOn(id, [&](Pending& call) {
      call.Conclude(status);
      if (call.watch) deadlines_.erase(*std::exchange(call.watch, std::nullopt));
      if (call.is_on_its_way()) call.watch = Watch(steady_clock::now() + kStuckLimit, id);
    });
  }

  // REQUIRES: mutex_ is held. Calls back later: nobody calls back with a lock.
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
    std::shared_ptr<Stream> stuck;
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
    // As gRPC says where this client's own clock has ended the call.
    const Status late = DeadlineExceeded("Deadline Exceeded").Because(Reason::kNone);
    for (const std::uint64_t id : due) GiveUp(id, late);
    SetTimer();
  }

  BriskLoop& loop_;
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
  std::shared_ptr<Stream> stream_;
  Calls calls_;
  Deadlines deadlines_;  // of calls, or when what is stuck of them ends the connection
  steady_clock::time_point timer_at_ =
      steady_clock::time_point::max();  // when SetTimer is next due at the latest
  std::uint64_t last_id_ = 0;
};

DataLink::DataLink(DataThreads& threads, RankAddress address, std::shared_ptr<Access> access)
    : impl_(std::make_shared<Impl>(threads.impl_->Next(), std::move(address), std::move(access))) {}
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
