// Makes checked requests from a call of the data transport whose arrays lie in a shared buffer of device
// memory. The device copies and checks the arrays, and the requests use the copies. Thread-safety: free
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

// A call's body in device memory, which the client may write at any time; the IngestCopy that copies it; and
// the charge for the copy, which ends with the copy.
struct DeviceBody {
  std::span<const std::byte> bytes;
  IngestCopy& arrivals;
  Reservation charge;
};

// Returns how many bytes the copies of a call's arrays take.
std::uint64_t BytesOfCopies(const v1::DataCall& call);

// Check what CheckLookups and CheckPushes check. Throw std::bad_alloc: no device memory for the copies.
// REQUIRES: Objection is empty.
Result<std::vector<CheckedLookup>> CheckLookupsOnDevice(const v1::DataCall& call, DeviceBody& body,
                                                        const FindTable& find_table);
Result<std::vector<PushRequest>> CheckPushesOnDevice(const v1::DataCall& call, DeviceBody& body,
                                                     const FindTable& find_table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DEVICE_CALL_H_
