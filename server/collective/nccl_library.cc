#include "server/collective/nccl_library.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace slotwise {
namespace {

template <class Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The library is never closed: its threads may live as long as the process.
const NcclLibrary* Load() {
  static NcclLibrary nccl;
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const bool complete = Find(library, "ncclGetVersion", nccl.GetVersion) &&
                        Find(library, "ncclGetUniqueId", nccl.GetUniqueId) &&
                        Find(library, "ncclCommInitRank", nccl.CommInitRank) &&
                        Find(library, "ncclCommDestroy", nccl.CommDestroy) &&
                        Find(library, "ncclCommGetAsyncError", nccl.CommGetAsyncError) &&
                        Find(library, "ncclGetErrorString", nccl.GetErrorString) &&
                        Find(library, "ncclGetLastError", nccl.GetLastError) &&
                        Find(library, "ncclGroupStart", nccl.GroupStart) &&
                        Find(library, "ncclGroupEnd", nccl.GroupEnd) &&
                        Find(library, "ncclAllGather", nccl.AllGather) &&
                        Find(library, "ncclReduceScatter", nccl.ReduceScatter) &&
                        Find(library, "ncclSend", nccl.Send) && Find(library, "ncclRecv", nccl.Recv);
  return complete ? &nccl : nullptr;
}

}  // namespace

const NcclLibrary* LoadNccl() {
  static const NcclLibrary* const kNccl = Load();
  return kNccl;
}

void CheckNccl(ncclResult_t result, const char* call, const char* file, int line) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const NcclLibrary& nccl = *LoadNccl();
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           nccl.GetErrorString(result) + ": " + nccl.GetLastError(nullptr));
}

}  // namespace slotwise
