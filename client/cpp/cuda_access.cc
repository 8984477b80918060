// Implements access to a GPU's memory with CUDA's driver.
//
// A client is built without CUDA and runs where there is no driver. So this file declares the few functions
// and types of the driver's interface that it uses, as in the CUDA Driver API's reference. The interface is
// stable: a function that changes gets another name (the "_v2" below).
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <utility>

#include "client/cpp/device_access.h"
#include "wire/array_align.h"

namespace slotwise::client {
namespace {

using CuResult = int;
using CuDevice = int;
using CuContext = void*;
using CuStream = void*;
using CuEvent = void*;
using CuPointer = unsigned long long;
using CuMemory = unsigned long long;
struct CuLocation {
  int type;
  int id;
};
struct CuAccess {
  CuLocation location;
  int flags;
};
constexpr int kDescriptorHandle = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
constexpr int kDeviceLocation = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
constexpr int kReadAndWrite = 3;      // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
constexpr unsigned kDisableTiming = 2;

// The driver's functions. The library is never unloaded, because others in the process may use it.
struct Driver {
  CuResult (*init)(unsigned);
  CuResult (*device_count)(int*);
  CuResult (*device)(CuDevice*, int);
  CuResult (*uuid)(void*, CuDevice);
  CuResult (*retain_context)(CuContext*, CuDevice);
  CuResult (*push_context)(CuContext);
  CuResult (*pop_context)(CuContext*);
  CuResult (*import_memory)(CuMemory*, void*, int);
  CuResult (*reserve)(CuPointer*, std::size_t, std::size_t, CuPointer, unsigned long long);
  CuResult (*free_addresses)(CuPointer, std::size_t);
  CuResult (*map)(CuPointer, std::size_t, std::size_t, CuMemory, unsigned long long);
  CuResult (*unmap)(CuPointer, std::size_t);
  CuResult (*set_access)(CuPointer, std::size_t, const CuAccess*, std::size_t);
  CuResult (*release)(CuMemory);
  CuResult (*copy)(CuPointer, CuPointer, std::size_t, CuStream);
  CuResult (*wait_for_stream)(CuStream);
  CuResult (*make_event)(CuEvent*, unsigned);
  CuResult (*record)(CuEvent, CuStream);
  CuResult (*query)(CuEvent);
  CuResult (*wait_for_event)(CuEvent);
  CuResult (*destroy_event)(CuEvent);

  static Result<const Driver*> Get() {
    static const Result<const Driver*> driver = Load();
    return driver;
  }

 private:
  static Result<const Driver*> Load() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return FailedPrecondition("this process finds no CUDA driver (libcuda.so.1)")
          .Because(Reason::kNoSharedGpu);
    static Driver driver;
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto& function) {
      void* const found = dlsym(library, name);
      if (found == nullptr) missing = name;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    find("cuInit", driver.init);
    find("cuDeviceGetCount", driver.device_count);
    find("cuDeviceGet", driver.device);
    find("cuDeviceGetUuid_v2", driver.uuid);
    find("cuDevicePrimaryCtxRetain", driver.retain_context);
    find("cuCtxPushCurrent_v2", driver.push_context);
    find("cuCtxPopCurrent_v2", driver.pop_context);
    find("cuMemImportFromShareableHandle", driver.import_memory);
    find("cuMemAddressReserve", driver.reserve);
    find("cuMemAddressFree", driver.free_addresses);
    find("cuMemMap", driver.map);
    find("cuMemUnmap", driver.unmap);
    find("cuMemSetAccess", driver.set_access);
    find("cuMemRelease", driver.release);
    find("cuMemcpyAsync", driver.copy);
    find("cuStreamSynchronize", driver.wait_for_stream);
    find("cuEventCreate", driver.make_event);
    find("cuEventRecord", driver.record);
    find("cuEventQuery", driver.query);
    find("cuEventSynchronize", driver.wait_for_event);
    find("cuEventDestroy_v2", driver.destroy_event);
    if (missing != nullptr) return FailedPrecondition(std::string("this CUDA driver has no ") + missing);
    if (const CuResult error = driver.init(0); error != 0) {
      return FailedPrecondition("the CUDA driver does not start: its error " + std::to_string(error));
    }
    return &driver;
  }
};

Status Failed(const char* what, CuResult error) {
  return {StatusCode::kInternal, std::string(what) + ": the CUDA driver's error " + std::to_string(error)};
}

// Makes the device's context current in this thread during its lifetime.
class InContext {
 public:
  InContext(const Driver& driver, CuContext context) : driver_(driver) { driver_.push_context(context); }
  ~InContext() {
    CuContext ignored = nullptr;
    driver_.pop_context(&ignored);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const Driver& driver_;
};

class CudaPoint final : public StreamPoint {
 public:
  CudaPoint(const Driver& driver, CuContext context, CuEvent event)
      : driver_(driver), context_(context), event_(event) {}
  ~CudaPoint() override {
    const InContext in(driver_, context_);
    driver_.destroy_event(event_);
  }
  // Every point of a broken device has passed: the device does not work any more.
  bool Passed() override {
    constexpr CuResult kNotReady = 600;
    const InContext in(driver_, context_);
    return driver_.query(event_) != kNotReady;
  }
  Status Wait() override {
    const InContext in(driver_, context_);
    const CuResult error = driver_.wait_for_event(event_);
    return error == 0 ? Status() : Failed("cuEventSynchronize", error);
  }

 private:
  const Driver& driver_;
  const CuContext context_;
  const CuEvent event_;
};

class CudaAccess final : public DeviceAccess {
 public:
  CudaAccess(const Driver& driver, CuDevice device, CuContext context)
      : driver_(driver), device_(device), context_(context) {}

  Result<std::shared_ptr<std::byte[]>> Map(int descriptor, std::uint64_t bytes) override {
    const InContext in(driver_, context_);
    CuMemory memory = 0;
    // The driver takes a descriptor as a pointer, and returns addresses as numbers.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    void* const handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
    const CuResult imported = driver_.import_memory(&memory, handle, kDescriptorHandle);
    close(descriptor);
    if (imported != 0) return Failed("cuMemImportFromShareableHandle", imported);
    CuPointer at = 0;
    CuResult error = driver_.reserve(&at, bytes, 0, 0, 0);
    const char* what = "cuMemAddressReserve";
    if (error == 0) {
      error = driver_.map(at, bytes, 0, memory, 0);
      what = "cuMemMap";
      if (error == 0) {
        const CuAccess access{{kDeviceLocation, device_}, kReadAndWrite};
        error = driver_.set_access(at, bytes, &access, 1);
        what = "cuMemSetAccess";
        if (error != 0) driver_.unmap(at, bytes);
      }
      if (error != 0) driver_.free_addresses(at, bytes);
    }
    driver_.release(memory);  // the mapping stays
    if (error != 0) return Failed(what, error);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* const mapped_at = reinterpret_cast<std::byte*>(at);
    return std::shared_ptr<std::byte[]>(mapped_at,
                                        [&driver = driver_, context = context_, bytes](std::byte* mapped) {
                                          const InContext mine(driver, context);
                                          const auto address = reinterpret_cast<CuPointer>(mapped);
                                          driver.unmap(address, bytes);
                                          driver.free_addresses(address, bytes);
                                        });
  }

  Result<std::shared_ptr<StreamPoint>> Mark(void* stream) override {
    const InContext in(driver_, context_);
    CuEvent event = nullptr;
    if (const CuResult error = driver_.make_event(&event, kDisableTiming); error != 0) {
      return Failed("cuEventCreate", error);
    }
    auto point = std::make_shared<CudaPoint>(driver_, context_, event);
    if (const CuResult error = driver_.record(event, stream); error != 0)
      return Failed("cuEventRecord", error);
    return std::shared_ptr<StreamPoint>(std::move(point));
  }

  Result<std::shared_ptr<StreamPoint>> CopyIn(void* stream, std::byte* to, const Pieces& pieces) override {
    const InContext in(driver_, context_);
    CuResult error = 0;
    for (const auto& piece : pieces) {
      if (error == 0 && !piece.empty()) {
        error = driver_.copy(reinterpret_cast<CuPointer>(to), reinterpret_cast<CuPointer>(piece.data()),
                             piece.size(), stream);
      }
      to += PaddedBytes(piece.size());
    }
    Result<std::shared_ptr<StreamPoint>> done =
        error == 0 ? Mark(stream) : Failed("a copy on the GPU", error);
    if (!done.ok()) driver_.wait_for_stream(stream);  // for the pieces before the one that failed
    return done;
  }

 private:
  const Driver& driver_;
  const CuDevice device_;
  const CuContext context_;
};

}  // namespace

Result<std::shared_ptr<DeviceAccess>> FindCudaDevice(const std::string& uuid) {
  const auto driver = Driver::Get();
  if (!driver.ok()) return driver.status();
  int count = 0;
  if (const CuResult error = (*driver)->device_count(&count); error != 0) {
    return Failed("cuDeviceGetCount", error);
  }
  for (int i = 0; i < count; ++i) {
    CuDevice device = 0;
    std::array<unsigned char, 16> bytes{};
    if ((*driver)->device(&device, i) != 0 || (*driver)->uuid(bytes.data(), device) != 0) continue;
    std::string name;
    for (const unsigned char byte : bytes) {
      std::array<char, 3> digits{};
      std::snprintf(digits.data(), digits.size(), "%02x", byte);
      name += digits.data();
    }
    if (name != uuid) continue;
    // The context of CUDA's runtime, and so of torch. It is kept until the process ends.
    CuContext context = nullptr;
    if (const CuResult error = (*driver)->retain_context(&context, device); error != 0) {
      return Failed("cuDevicePrimaryCtxRetain", error);
    }
    return std::shared_ptr<DeviceAccess>(std::make_shared<CudaAccess>(**driver, device, context));
  }
  return FailedPrecondition("this process sees no GPU " + uuid).Because(Reason::kNoSharedGpu);
}

}  // namespace slotwise::client
