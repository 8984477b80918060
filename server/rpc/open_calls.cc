#include "server/rpc/open_calls.h"

#include <algorithm>

namespace slotwise {

bool SharedCalls::Open(std::uint64_t own) {
  const std::uint64_t most = most_;
  std::uint64_t open = open_;
  do {
    if (open >= most || own >= most - open) return false;
  } while (!open_.compare_exchange_weak(open, open + 1));
  return true;
}

OpenCalls::Opened OpenCalls::Open(std::uint32_t stream) {
  if (open() >= most_) return Opened::kTooManyOfConnection;
  if (!shared_.Open(open())) return Opened::kTooManyOfAll;
  calls_.push_back({.stream = stream});
  return Opened::kYes;
}

void OpenCalls::Reset(std::uint32_t stream) {
  if (const auto call = Find(stream); call != calls_.end()) Close(call);
}

void OpenCalls::CloseAll() {
  shared_.Close(open());
  calls_.clear();
}

OpenCalls::Calls::iterator OpenCalls::Find(std::uint32_t stream) {
  const auto call = std::ranges::lower_bound(calls_, stream, {}, &Call::stream);
  return call != calls_.end() && call->stream == stream ? call : calls_.end();
}

void OpenCalls::End(std::uint32_t stream, bool Call::*ended) {
  const auto call = Find(stream);
  if (call == calls_.end()) return;
  (*call).*ended = true;
  if (call->client_ended && call->server_ended) Close(call);
}

void OpenCalls::Close(Calls::iterator call) {
  calls_.erase(call);
  shared_.Close(1);
}

}  // namespace slotwise
