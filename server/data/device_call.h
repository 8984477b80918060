// A call of the data transport whose arrays lie in an arena of the device's memory: they are copied there, and
// requests are made of the copies, by what the device has found of them.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DATA_DEVICE_CALL_H_
#define SLOTWISE_SERVER_DATA_DEVICE_CALL_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/arrivals.h"
#include "server/engine/request.h"
#include "server/intake/check.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise {

// As CheckLookups and CheckPushes, of a call whose body the client may write at any moment. REQUIRES: there is
// no objection to the call and its body. Throws std::bad_alloc if there is no device memory for the copies.
Result<std::vector<CheckedLookup>> CheckLookupsOnDevice(const v1::DataCall& call,
                                                        std::span<const std::byte> body, Arrivals& arrivals,
                                                        const FindTable& find_table);
Result<std::vector<PushRequest>> CheckPushesOnDevice(const v1::DataCall& call,
                                                     std::span<const std::byte> body, Arrivals& arrivals,
                                                     const FindTable& find_table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DEVICE_CALL_H_
