// Starts, ends and awaits calls, one by one or in queues of finished calls.
#include "client/c/call.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <latch>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include "wire/spare_processors.h"

namespace slotwise::c {
namespace {

// Returns the status for the exception that is being handled.
Status Thrown() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("this process has no memory left").Because(Reason::kNoMemory);
  } catch (const std::system_error& error) {
    return ResourceExhausted(std::string("this process cannot start a thread: ") + error.what());
  } catch (const std::exception& error) {
    return {StatusCode::kInternal, error.what()};
  }
}

// The traceparent of the calls that this thread starts.
thread_local std::string traceparent;

// Reads a call's options into `call`; returns INVALID_ARGUMENT if they are invalid.
Status Read(const slotwise_call_options& options, CallOptions& call) {
  if (options.timeout_ms < 0) {
    return InvalidArgument("timeout_ms is " + std::to_string(options.timeout_ms) + ": must not be below 0");
  }
  if (options.timeout_ms > 0) call.timeout = std::chrono::milliseconds(options.timeout_ms);
  if (options.has_data_type == 0) return {};
  if (options.data_type < SLOTWISE_FLOAT32 || options.data_type > SLOTWISE_BFLOAT16) {
    return InvalidArgument("data_type is " + std::to_string(options.data_type) + ", which is no type");
  }
  call.data_type = static_cast<DataType>(options.data_type);
  return {};
}

}  // namespace

const std::string& Traceparent() { return traceparent; }

}  // namespace slotwise::c

void slotwise_set_traceparent(const char* text) { slotwise::c::traceparent = text == nullptr ? "" : text; }

void slotwise_call::Finish(const std::shared_ptr<State>& state, const slotwise_call_options& options,
                           slotwise_call* handle, Outcome outcome) {
  {
    const std::lock_guard lock(state->mutex);
    if (state->code != SLOTWISE_RUNNING) return;
    state->message = outcome.status().message();
    state->retry_after = outcome.status().retry_after();
    state->reason = outcome.status().reason();
    if (outcome.ok()) state->answer = std::move(*outcome);
    state->teller = std::this_thread::get_id();
    state->code = slotwise::c::CodeOf(outcome.status().code());
    state->ended = true;
    state->changed.notify_all();
  }
  if (options.done != nullptr) options.done(options.user, handle);  // it may free the call, not the state
  const std::lock_guard lock(state->mutex);
  state->teller = {};
  state->told = true;
  state->changed.notify_all();
}

slotwise_call* slotwise_call::Start(const slotwise_call_options* options, const Begin& begin, bool soon,
                                    const Push* push) {
  const slotwise_call_options given = options == nullptr ? slotwise_call_options{} : *options;
  std::unique_ptr<slotwise_call> call(new slotwise_call);
  slotwise_call* const handle = call.release();  // from here on, the callback may free it
  const std::shared_ptr<State> state = handle->state_;
  state->soon = soon;
  const End end = [state, given, handle](Outcome outcome) {
    Finish(state, given, handle, std::move(outcome));
  };
  slotwise::CallOptions checked;
  checked.traceparent = slotwise::c::Traceparent();
  checked.stop = state->stop.get_token();
  if (slotwise::Status status = slotwise::c::Read(given, checked); !status.ok()) {
    end(std::move(status));
    return handle;
  }
  try {
    begin(checked, end);
    if (push != nullptr) {
      const std::lock_guard lock(state->mutex);
      state->push = *push;
    }
  } catch (...) {
    end(slotwise::c::Thrown());
  }
  return handle;
}

slotwise_call* slotwise_call::StartThread(const slotwise_call_options* options, const Work& work) {
  const auto ready = std::make_shared<std::latch>(1);
  std::thread thread;
  slotwise_call* const call = Start(options, [&](const slotwise::CallOptions& checked, const End& end) {
    thread = std::thread([ready, checked, end, work] {
      ready->wait();
      try {
        end(work(checked));
      } catch (...) {
        end(slotwise::c::Thrown());
      }
    });
  });
  // Without a thread, the call has ended, and may be free.
  if (thread.joinable()) call->thread_ = std::move(thread);
  ready->count_down();
  return call;
}

slotwise_call::~slotwise_call() {
  Cancel();
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] {
      return state_->told || state_->teller == std::this_thread::get_id();  // the callback may free its call
    });
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

std::int32_t slotwise_call::Wait(std::int64_t most_ms) const {
  constexpr std::chrono::milliseconds kAwake{2};
  const auto begin = std::chrono::steady_clock::now();
  const bool awake = state_->soon && slotwise::HasSpareProcessors();
  while (awake && !state_->ended && std::chrono::steady_clock::now() - begin < kAwake) {
  }
  std::unique_lock lock(state_->mutex);
  const auto ended = [this] { return state_->code != SLOTWISE_RUNNING; };
  if (most_ms < 0) {
    state_->changed.wait(lock, ended);
  } else {
    state_->changed.wait_for(lock, slotwise::c::Bounded(most_ms), ended);
  }
  return state_->code;
}

std::int32_t slotwise_call_wait(slotwise_call* call, std::int64_t most_ms) { return call->Wait(most_ms); }
void slotwise_call_cancel(slotwise_call* call) { call->Cancel(); }
void slotwise_call_free(slotwise_call* call) { delete call; }
const char* slotwise_call_message(const slotwise_call* call) { return call->message().c_str(); }
std::int64_t slotwise_call_retry_after_ms(const slotwise_call* call) { return call->retry_after().count(); }
const char* slotwise_call_reason(const slotwise_call* call) {
  return slotwise::ToString(call->reason()).data();
}
const char* slotwise_call_json(const slotwise_call* call) { return call->answer().json.c_str(); }

const std::uint64_t* slotwise_call_numbers(const slotwise_call* call, std::size_t* count) {
  *count = call->answer().numbers.size();
  return call->answer().numbers.data();
}

slotwise_client* slotwise_call_client(slotwise_call* call) { return call->answer().client.release(); }

struct slotwise_queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<slotwise_call*> calls;  // guarded by mutex
};

slotwise_queue* slotwise_queue_new() {
  return slotwise::c::OrNull([] { return new slotwise_queue; });
}

void slotwise_queue_free(slotwise_queue* queue) { delete queue; }

void slotwise_queue_post(void* queue, slotwise_call* call) {
  auto* const to = static_cast<slotwise_queue*>(queue);
  const std::lock_guard lock(to->mutex);
  to->calls.push_back(call);
  to->changed.notify_one();
}

slotwise_call* slotwise_queue_take(slotwise_queue* queue, std::int64_t most_ms) {
  std::unique_lock lock(queue->mutex);
  const auto there = [queue] { return !queue->calls.empty(); };
  if (most_ms < 0) {
    queue->changed.wait(lock, there);
  } else {
    queue->changed.wait_for(lock, slotwise::c::Bounded(most_ms), there);
  }
  if (queue->calls.empty()) return nullptr;
  slotwise_call* const call = queue->calls.front();
  queue->calls.pop_front();
  return call;
}
