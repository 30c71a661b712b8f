// A STAND-IN for the HIP runtime (libamdhip64), for machines without ROCm: it takes the
// registration of the program's fat binary, prints what it was given, and answers every
// call as the real runtime does where there is no GPU. It never runs a kernel.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "hip_declarations.h"

namespace {

constexpr std::uint32_t kWrapperMagic = 0x48495046;  // "HIPF"
constexpr std::uint32_t kMarkerMagic = 0x4B504948;   // "HIPK": device code is apart
constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";

struct FatBinaryWrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const char* binary;
    void* unused;
};

std::uint64_t read64(const char*& at) {
    std::uint64_t value;
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
}

void print_bundle(const char* bundle) {
    const char* at = bundle + std::strlen(kBundleMagic);
    std::uint64_t count = read64(at);
    for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t offset = read64(at), size = read64(at), length = read64(at);
        std::printf("  %.*s: %llu bytes at %#llx\n", static_cast<int>(length), at,
                    static_cast<unsigned long long>(size),
                    static_cast<unsigned long long>(offset));
        at += length;
    }
}

// A marker is MessagePack: behind the key there is a text of up to 31 or 255 bytes.
void print_marker(const char* marker) {
    constexpr char kKey[] = "kernel_name";
    const char* at = marker;
    while (std::memcmp(at, kKey, sizeof kKey - 1) != 0) ++at;
    at += sizeof kKey - 1;
    auto head = static_cast<unsigned char>(*at++);
    int size = head == 0xD9 ? static_cast<unsigned char>(*at++) : head & 31;
    std::printf("stand-in HIP runtime: marker registered: %.*s\n", size, at);
}

}  // namespace

extern "C" {

void** __hipRegisterFatBinary(const void* data) {
    auto wrapper = static_cast<const FatBinaryWrapper*>(data);
    static void* handle;
    if (wrapper->magic == kMarkerMagic) {
        print_marker(wrapper->binary);
        return &handle;
    }
    if (wrapper->magic != kWrapperMagic ||
        std::memcmp(wrapper->binary, kBundleMagic, std::strlen(kBundleMagic)) != 0) {
        std::puts("stand-in HIP runtime: what was registered is no fat binary");
        return nullptr;
    }
    std::puts("stand-in HIP runtime: fat binary registered");
    print_bundle(wrapper->binary);
    return &handle;
}

void __hipRegisterFunction(void**, const void*, char*, const char* name, unsigned, void*, void*,
                           void*, void*, int*) {
    std::printf("stand-in HIP runtime: kernel registered: %s\n", name);
}

void __hipRegisterVar(void**, void*, char*, const char* name, int, std::size_t, int, int) {
    std::printf("stand-in HIP runtime: variable registered: %s\n", name);
}

void __hipUnregisterFatBinary(void**) {}

hipError_t __hipPushCallConfiguration(dim3, dim3, std::size_t, hipStream_t) { return hipSuccess; }
hipError_t __hipPopCallConfiguration(dim3*, dim3*, std::size_t*, hipStream_t*) {
    return hipSuccess;
}
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, std::size_t, hipStream_t) {
    return hipErrorNoDevice;
}
hipError_t hipGetDeviceCount(int* count) {
    *count = 0;
    return hipErrorNoDevice;
}
const char* hipGetErrorString(hipError_t error) {
    return error == hipSuccess ? "no error" : "no ROCm-capable device is detected";
}
hipError_t hipMalloc(void**, std::size_t) { return hipErrorNoDevice; }
hipError_t hipFree(void*) { return hipErrorNoDevice; }
hipError_t hipMemcpy(void*, const void*, std::size_t, hipMemcpyKind) { return hipErrorNoDevice; }
hipError_t hipMemcpyFromSymbol(void*, const void*, std::size_t, std::size_t, hipMemcpyKind) {
    return hipErrorNoDevice;
}
hipError_t hipDeviceSynchronize(void) { return hipErrorNoDevice; }
}
