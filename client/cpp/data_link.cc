#include "client/cpp/data_link.h"

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <deque>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "client/cpp/arena.h"
#include "client/cpp/data_connecting.h"
#include "client/cpp/from_grpc.h"
#include "client/cpp/when_passed.h"
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

Status Gone(const std::string& why) { return Unavailable(why); }
// Returns what gRPC says, too, where this client's own clock has ended the call.
Status Late() { return DeadlineExceeded("Deadline Exceeded").Because(Reason::kNone); }

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
      const auto call = calls_
                            .emplace(id, Pending{.exchange = std::move(exchange),
                                                 .done = std::move(done),
                                                 .deadline = how.deadline,
                                                 .traceparent = how.traceparent})
                            .first;
      stream = stream_;
      try {
        call->second.watch = Watch(how.deadline, id);
        if (stream == nullptr) waiting_.push_back(id);
      } catch (...) {  // there is no memory: the caller hears that by the exception alone
        if (call->second.watch) deadlines_.erase(*call->second.watch);
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
      std::shared_ptr<Stream> stream;
      {
        const std::lock_guard lock(self->mutex_);
        self->closed_ = true;
        stream = self->stream_;
      }
      if (self->connecting_) self->connecting_->Fail("the client is closed");
      if (stream) stream->End("the client is closed");
    });
  }

 private:
  using Deadlines = std::multimap<steady_clock::time_point, std::uint64_t>;
  struct Pending {
    std::shared_ptr<DataExchange> exchange;
    Done done;
    steady_clock::time_point deadline;
    std::string traceparent;
    bool copying = false;  // the device may read the exchange's arrays
    bool sending = false;  // the stream may
    bool reading = false;  // the stream may write where its values go
    std::optional<Status> outcome = std::nullopt;
    Status read = {};
    std::optional<Deadlines::iterator> watch = std::nullopt;
  };

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
      if (OnDevice* const of = exchange.on_device()) {
        if (gpu_ == nullptr) return {StatusCode::kInternal, "the connection has no memory of the device"};
        auto there = gpu_->Put(id, frame.body, exchange.ValueBytes(), *of);
        if (!there.ok()) return there.status();
        *head.mutable_arena() = std::move(*there);
        frame.body.clear();
        return {};
      }
      if (!arena_) return {};
      const std::uint64_t value_bytes = exchange.ValueBytes();
      std::uint64_t bytes = value_bytes;
      for (const auto& piece : frame.body) bytes += piece.size();
      if (bytes < kLeastInArena) return {};
      auto places = arena_->Put(id, frame.body, value_bytes);
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
    connecting_.reset();
    std::vector<std::uint64_t> waiting;
    bool closed = false;
    {
      const std::lock_guard lock(mutex_);
      connect_asked_ = false;
      stream_ = stream;
      waiting.swap(waiting_);
      closed = closed_;
    }
    stream->Start();
    if (closed) stream->End("the client is closed");
    for (const std::uint64_t id : waiting) Write(stream, id);
  }

  void NotConnected(const Status& why) {
    connecting_.reset();
    std::vector<std::uint64_t> waiting;
    {
      const std::lock_guard lock(mutex_);
      connect_asked_ = false;
      waiting.swap(waiting_);
    }
    const Status status = why.InWords("cannot connect: " + why.message());
    for (const std::uint64_t id : waiting) GiveUp(id, status);
  }

  // Returns whether calls go by the memory of a GPU.
  bool IsBrisk() const { return address_.by_gpu && address_.gpu != kHostMemory; }

  // REQUIRES: nobody else writes this call.
  void Write(const std::shared_ptr<Stream>& stream, std::uint64_t id) {
    const auto written = std::make_shared<Written>();
    {
      const std::lock_guard lock(mutex_);
      const auto call = calls_.find(id);
      if (call == calls_.end() || call->second.outcome) return;
      call->second.sending = true;
      written->exchange = call->second.exchange;
      written->deadline = call->second.deadline;
      written->head.set_traceparent(call->second.traceparent);
    }
    written->stream = stream;
    written->id = id;
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
    if (!status.ok()) return NotSent(id, std::move(status));
    if (exchange.on_device() == nullptr) return Send(*written);
    {
      const std::lock_guard lock(mutex_);
      Pending& call = calls_.find(id)->second;
      call.copying = true;
      call.sending = false;
    }
    WhenPassed(
        loop_, exchange.on_device()->carried->there,
        [self = shared_from_this(), written](Status there) { self->Copied(written, std::move(there)); });
  }

  // A call that could be sent. Its copy on a device may not be done yet.
  struct Written {
    std::shared_ptr<Stream> stream;
    std::uint64_t id = 0;
    std::shared_ptr<DataExchange> exchange;
    steady_clock::time_point deadline;
    v1::DataCall head;
    OutgoingFrame frame;
  };

  // A call's arrays are in the device's memory. It is sent now, or behind another call.
  void Copied(const std::shared_ptr<Written>& written, Status there) {
    std::shared_ptr<Turn> behind;
    {
      const std::lock_guard lock(mutex_);
      const auto call = calls_.find(written->id);
      call->second.copying = false;
      if (!call->second.outcome && there.ok()) {
        behind = written->exchange->on_device()->behind;
        call->second.sending = behind == nullptr;
      } else {
        written->stream->Drop(written->id);
        if (!call->second.outcome) Refuse(call->second, std::move(there));
        return EndIfOver(call);
      }
    }
    if (behind == nullptr) return Send(*written);
    behind->Await([self = shared_from_this(), written](bool well) {
      asio::post(self->context_, [self, written, well] { self->OnTurn(*written, well); });
    });
  }

  // The call before this one has ended.
  void OnTurn(Written& written, bool well) {
    {
      const std::lock_guard lock(mutex_);
      const auto call = calls_.find(written.id);
      if (call == calls_.end() || !well) {
        written.stream->Drop(written.id);
        if (call == calls_.end()) return;
        Refuse(call->second, {StatusCode::kCancelled, "the push that this call comes behind has failed"});
        return EndIfOver(call);
      }
      call->second.sending = true;
    }
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
      const std::lock_guard lock(self->mutex_);
      const auto call = self->calls_.find(id);
      call->second.sending = false;
      // The connection was lost before this call was given to it.
      if (self->stream_.get() != sent_to && !call->second.outcome) {
        call->second.outcome = Gone("the connection was lost");
      }
      self->EndIfOver(call);
    };
    written.stream->Send(std::move(frame));
  }

  void NotSent(std::uint64_t id, Status why) {
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(id);
    call->second.sending = false;
    if (!call->second.outcome) Refuse(call->second, std::move(why));
    EndIfOver(call);
  }

  // Returns what a server's refusal says. A server that is older than reasons has its code's first one.
  Status Refusal(const v1::DataReply& reply) const {
    const Reason said = FromProto(reply.reason());
    return AnswerOf(reply.code(), reply.message(), std::chrono::milliseconds(reply.retry_after_ms()),
                    said == Reason::kNone ? DefaultReason(FromWireCode(reply.code())) : said,
                    address_.address);
  }

  // Ends a call that has no outcome yet, and does not send it again.
  static void Refuse(Pending& call, Status why) {
    call.outcome = Status();
    call.read = std::move(why);
  }

  std::optional<FrameStream::Room> RoomFor(Stream& stream, const v1::DataReply& reply,
                                           std::uint64_t body_bytes) {
    std::shared_ptr<DataExchange> exchange;
    {
      const std::lock_guard lock(mutex_);
      const auto call = calls_.find(reply.id());
      if (call == calls_.end() || call->second.outcome) return FrameStream::Room{.skip = true};
      if (reply.code() != 0) return FrameStream::Room{.skip = true};
      call->second.reading = true;
      exchange = call->second.exchange;
    }
    auto room = exchange->MakeRoom(reply);
    std::uint64_t bytes = 0;
    FrameStream::Room to;
    const bool there = reply.in_arena() || exchange->on_device() != nullptr;
    if (room.ok() && there) {
      if (body_bytes == 0 && stream.TakeFromArena(reply.id(), *exchange, *room)) return to;
      const std::lock_guard lock(mutex_);
      const auto call = calls_.find(reply.id());
      call->second.reading = false;
      if (!call->second.outcome) call->second.outcome = Gone("the server has taken its memory back");
      EndIfOver(call);
      return FrameStream::Room{.skip = true};
    }
    if (room.ok()) {
      for (const auto& piece : *room) {
        bytes += piece.size();
        if (!piece.empty()) to.buffers.emplace_back(piece.data(), piece.size());
      }
      if (bytes == body_bytes) return to;
    }
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(reply.id());
    call->second.reading = false;
    call->second.read =
        !room.ok() ? room.status()
                   : Status(StatusCode::kInternal, "a reply has " + std::to_string(body_bytes) +
                                                       " bytes of values, not " + std::to_string(bytes));
    if (!call->second.outcome) call->second.outcome = Status();
    EndIfOver(call);
    return FrameStream::Room{.skip = true};
  }

  void Answered(const v1::DataReply& reply) {
    if (IsBrisk()) loop_.Relax();
    std::shared_ptr<DataExchange> exchange;
    {
      const std::lock_guard lock(mutex_);
      const auto call = calls_.find(reply.id());
      if (call == calls_.end()) return;
      if (!call->second.reading) {
        if (call->second.outcome) return;
        call->second.outcome = Refusal(reply);
        return EndIfOver(call);
      }
      if (!call->second.outcome) exchange = call->second.exchange;
    }
    Status read = exchange == nullptr ? Status() : exchange->Read(reply);
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(reply.id());
    call->second.reading = false;
    if (!call->second.outcome) {
      call->second.outcome = Status();
      call->second.read = std::move(read);
    }
    EndIfOver(call);
  }

  void Lost(const Stream& stream, const std::string& why) {
    std::vector<std::uint64_t> lost;
    {
      const std::lock_guard lock(mutex_);
      if (stream_.get() != &stream) return;
      stream_.reset();
      for (auto& [id, call] : calls_) {
        call.reading = false;
        lost.push_back(id);
      }
      // Calls that wait for the next connection have nothing on this one.
      std::erase_if(lost,
                    [this](std::uint64_t id) { return std::ranges::find(waiting_, id) != waiting_.end(); });
    }
    for (const std::uint64_t id : lost) GiveUp(id, Gone("the connection was lost: " + why));
  }

  // Ends a call that is not over, once nothing of it is on its way. The io_context's thread's.
  void GiveUp(std::uint64_t id, const Status& status) {
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(id);
    if (call == calls_.end()) return;
    if (!call->second.outcome) call->second.outcome = status;
    if (call->second.watch) deadlines_.erase(*std::exchange(call->second.watch, std::nullopt));
    if (call->second.sending || call->second.reading) {
      call->second.watch = Watch(steady_clock::now() + kStuckLimit, id);
    }
    EndIfOver(call);
  }

  // REQUIRES: mutex_ is held. Calls back later: nobody calls back with a lock.
  void EndIfOver(Calls::iterator call) {
    Pending& pending = call->second;
    if (!pending.outcome || pending.copying || pending.sending || pending.reading) return;
    std::erase(waiting_, call->first);
    if (pending.watch) deadlines_.erase(*pending.watch);
    asio::post(context_, [done = std::move(pending.done), answer = *pending.outcome,
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
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
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
        if (call->second.outcome) {
          stuck = stream_;
        } else {
          due.push_back(id);
        }
      }
    }
    if (stuck) stuck->End("bytes of a call that was given up were stuck");
    for (const std::uint64_t id : due) GiveUp(id, Late());
    SetTimer();
  }

  BriskLoop& loop_;
  asio::io_context& context_;  // the loop's
  const RankAddress address_;
  const std::shared_ptr<Access> access_;
  asio::steady_timer timer_;                    // the io_context's thread's
  std::shared_ptr<DataConnecting> connecting_;  // the io_context's thread's

  std::mutex mutex_;
  // Guarded by mutex_:
  bool closed_ = false;
  bool connect_asked_ = false;
  std::shared_ptr<Stream> stream_;
  Calls calls_;
  std::vector<std::uint64_t> waiting_;  // for a connection
  Deadlines deadlines_;                 // of calls, or when what is stuck of them ends the connection
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
