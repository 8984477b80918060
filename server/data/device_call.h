// A call of the data transport whose arrays lie in a shared buffer of the device's memory: they are copied
// there, and requests are made of the copies, by what the device has found of them. Thread-safety: free
// functions.
#ifndef SLOTWISE_SERVER_DATA_DEVICE_CALL_H_
#define SLOTWISE_SERVER_DATA_DEVICE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/engine/operations/push.h"
#include "server/intake/check.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise {

// A call's body in device memory, which its client may write at any moment; what copies it; and what the copy
// is charged to, which ends with the copy.
struct DeviceBody {
  std::span<const std::byte> bytes;
  IngestCopy& arrivals;
  Reservation charge;
};

// Returns how many bytes the copies of a call's arrays take.
std::uint64_t BytesOfCopies(const v1::DataCall& call);

// As CheckLookups and CheckPushes. REQUIRES: there is no objection to the call and its body. Throws
// std::bad_alloc if there is no device memory for the copies.
Result<std::vector<CheckedLookup>> CheckLookupsOnDevice(const v1::DataCall& call, DeviceBody& body,
                                                        const FindTable& find_table);
Result<std::vector<PushRequest>> CheckPushesOnDevice(const v1::DataCall& call, DeviceBody& body,
                                                     const FindTable& find_table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DEVICE_CALL_H_
