// A WireArray is an array of a request, read from the wire into memory that the engine will use.
// Thread-safety: a WireArray belongs to one thread.
#ifndef SLOTWISE_SERVER_INTAKE_WIRE_ARRAY_H_
#define SLOTWISE_SERVER_INTAKE_WIRE_ARRAY_H_

#include <cstddef>

#include "server/engine/schedule/request.h"
#include "wire/wire_reader.h"

namespace slotwise {

// A `bytes` field that is an array of T.
template <class T>
struct WireArray {
  ArrayPool* pool = nullptr;  // the pool that the memory comes from
  BatchArray<T> values = {};
  std::size_t bytes = 0;  // as sent; `values` holds them only if they are a whole number of T

  bool whole() const { return bytes % sizeof(T) == 0; }

  // Returns where `size` bytes from the wire go, or null if they are not a whole number of Ts.
  void* MakeRoom(std::size_t size) {
    bytes = size;
    values = BatchArray<T>(whole() ? size / sizeof(T) : 0, pool);
    return whole() ? values.data() : nullptr;
  }
};

// A `bytes` field of numbers whose DataType is known only when the whole message is read.
struct WireNumbers {
  ArrayPool* pool = nullptr;     // the pool that the memory comes from
  BatchArray<float> words = {};  // large enough for `bytes`
  std::size_t bytes = 0;

  void* MakeRoom(std::size_t size) {
    bytes = size;
    words = BatchArray<float>((size + sizeof(float) - 1) / sizeof(float), pool);
    return words.data();
  }
};

inline ArrayField ReadInto(int number, WireNumbers& array) {
  return {number, [&array](std::size_t size) { return array.MakeRoom(size); }};
}

template <class T>
ArrayField ReadInto(int number, WireArray<T>& array) {
  return {number, [&array](std::size_t size) { return array.MakeRoom(size); }};
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_WIRE_ARRAY_H_
