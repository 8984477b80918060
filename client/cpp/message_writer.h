// A MessageWriter writes a message into one piece of memory: its small fields, then its arrays, one after the
// other.
// Thread-safety: for one thread at a time.
#ifndef SLOTWISE_CLIENT_CPP_MESSAGE_WRITER_H_
#define SLOTWISE_CLIENT_CPP_MESSAGE_WRITER_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/message_memory.h"
#include "wire/wire_writer.h"

namespace slotwise::client {

class MessageWriter {
 public:
  // A `bytes` field of `size` bytes that `write` fills.
  struct Array {
    int field = 0;
    std::size_t size = 0;
    std::function<void(char*)> write;
  };

  explicit MessageWriter(const google::protobuf::MessageLite& small_fields)
      : header_(small_fields.SerializeAsString()) {}

  void Add(int field, std::size_t size, std::function<void(char*)> write) {
    if (size > 0) arrays_.push_back({field, size, std::move(write)});
  }

  template <class T>
  void AddCopy(int field, std::span<const T> values) {
    Add(field, values.size_bytes(),
        [values](char* to) { std::memcpy(to, values.data(), values.size_bytes()); });
  }

  grpc::ByteBuffer Write(MessageMemory& memory) const {
    std::vector<std::string> headers(arrays_.size());
    std::size_t size = header_.size();
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      AppendArrayHeader(arrays_[i].field, arrays_[i].size, headers[i]);
      size += headers[i].size() + arrays_[i].size;
    }
    const auto [slice, bytes] = memory.Take(size);
    char* to = reinterpret_cast<char*>(bytes);
    to = std::ranges::copy(header_, to).out;
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      to = std::ranges::copy(headers[i], to).out;
      arrays_[i].write(to);
      to += arrays_[i].size;
    }
    return {&slice, 1};
  }

 private:
  const std::string header_;
  std::vector<Array> arrays_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_MESSAGE_WRITER_H_
