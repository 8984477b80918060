// This header loads NCCL's library at run time, and checks its calls.
//
// Thread-safety: any thread.
#ifndef SLOTWISE_SERVER_COLLECTIVE_NCCL_LIBRARY_H_
#define SLOTWISE_SERVER_COLLECTIVE_NCCL_LIBRARY_H_

#include <nccl.h>

namespace slotwise {

// NCCL's functions, without their prefix.
struct NcclLibrary {
  decltype(&ncclGetVersion) GetVersion;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclCommInitRank) CommInitRank;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
  decltype(&ncclAllGather) AllGather;
  decltype(&ncclReduceScatter) ReduceScatter;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;
};

// Returns null if this machine has no NCCL, or one that lacks a function.
const NcclLibrary* LoadNccl();

// Throws std::runtime_error with what NCCL says, unless `result` is ncclSuccess or `call` is still under way.
void CheckNccl(ncclResult_t result, const char* call, const char* file, int line);

#define SLOTWISE_NCCL_TRY(call) ::slotwise::CheckNccl((call), #call, __FILE__, __LINE__)

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_NCCL_LIBRARY_H_
