// Parts of the language, each checked by a value that the host knows.
#include "report.h"
UNIT(features)

static int *device_result;
static int result() {
    int value = -1;
    CHECK(GetLastError());
    CHECK(DeviceSynchronize());
    CHECK(Memcpy(&value, device_result, sizeof value, gpu(MemcpyDeviceToHost)));
    CHECK(Memset(device_result, 0xff, sizeof value));
    return value;
}
static void say(const char *what, int value) { printf("%s %d\n", what, value); }

__constant__ int table[4] = {1, 2, 3, 4};
__global__ void read_table(int *out) {
    *out = table[0] + 10 * table[1] + 100 * table[2] + 1000 * table[3];
}

__device__ int counter;
__global__ void count(int times) {
    for (int i = 0; i < times; ++i) atomicAdd(&counter, 1);
}

template <typename T, int N> __global__ void scale(T *out, T value) { *out = value * N; }

namespace {
__global__ void hidden(int *out) { *out = 77; }
}  // namespace

template <typename F> __global__ void apply(int *out, F function) { *out = function(6); }

__global__ void reduce(int *out) {
    int value = threadIdx.x;
    for (int step = 16; step > 0; step /= 2)
#ifdef __HIP__
        value += __shfl_down(value, step);
#else
        value += __shfl_down_sync(0xffffffffu, value, step);
#endif
    __shared__ int sum;
    if (threadIdx.x == 0) sum = value;
    __syncthreads();
    if (threadIdx.x == 1) *out = sum;
}

extern __shared__ int dynamic[];
__global__ void reverse(int *out, int size) {
    dynamic[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) *out = dynamic[size - 1] * 1000 + dynamic[1];
}

__global__ void mathematics(int *out, float x, double y) {
    *out = (int)(sinf(x) * sinf(x) * 1000 + cosf(x) * cosf(x) * 1000 + 0.5f) + (int)(pow(y, 3.0) + 0.5);
}

__device__ int twice(int x) { return 2 * x; }
__device__ int thrice(int x) { return 3 * x; }
__device__ int (*functions[])(int) = {twice, thrice};
__global__ void indirect(int *out, int which) { *out = functions[which](7); }

struct Shape {
    __device__ virtual int corners() const { return 0; }
};
struct Square : Shape {
    __device__ int corners() const override { return 4; }
};
__global__ void dispatch(int *out) {
    Square square;
    Shape *volatile shape = &square;
    *out = shape->corners();
}

__global__ void print(int number) { printf("device says %d\n", number); }

__global__ void add_to(int *value) { *value += 5; }

#ifndef __HIP__
__global__ void fetch(int *out, cudaTextureObject_t texture) {
    *out = tex1Dfetch<int>(texture, 2) + 10 * tex1Dfetch<int>(texture, 3);
}
static void check_texture() {
    int *data, values[4] = {5, 6, 7, 8};
    CHECK(Malloc((void **)&data, sizeof values));
    CHECK(Memcpy(data, values, sizeof values, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = data;
    resource.res.linear.desc = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindSigned);
    resource.res.linear.sizeInBytes = sizeof values;
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CHECK(CreateTextureObject(&texture, &resource, &description, nullptr));
    fetch<<<1, 1>>>(device_result, texture);
    say("texture", result());
}
#endif

int main() {
    CHECK(Malloc((void **)&device_result, sizeof(int)));
    report("features", features);

    read_table<<<1, 1>>>(device_result);
    say("constant", result());
    const int other[4] = {9, 8, 7, 6};
    CHECK(MemcpyToSymbol(SYMBOL(table), other, sizeof other));
    read_table<<<1, 1>>>(device_result);
    say("constant after a copy", result());

    count<<<4, 32>>>(2);
    int counted = 0;
    CHECK(MemcpyFromSymbol(&counted, SYMBOL(counter), sizeof counted));
    say("device variable", counted);

    scale<int, 3><<<1, 1>>>(device_result, 14);
    say("template", result());
    hidden<<<1, 1>>>(device_result);
    say("unnamed namespace", result());
    int captured = 36;
    apply<<<1, 1>>>(device_result, [=] __device__(int x) { return x + captured; });
    say("lambda", result());
    reduce<<<1, 32>>>(device_result);
    say("shuffle", result());
    reverse<<<1, 64, 64 * sizeof(int)>>>(device_result, 64);
    say("shared memory", result());
    mathematics<<<1, 1>>>(device_result, 0.7f, 5.0);
    say("mathematics", result());
    indirect<<<1, 1>>>(device_result, 1);
    say("function pointer", result());
    dispatch<<<1, 1>>>(device_result);
    say("virtual function", result());
#ifndef __HIP__
    check_texture();
#endif
    int *shared_value;
    CHECK(MallocManaged((void **)&shared_value, sizeof(int)));
    *shared_value = 37;
    add_to<<<1, 1>>>(shared_value);
    CHECK(GetLastError());
    CHECK(DeviceSynchronize());
    say("managed", *shared_value);

    gpu(Stream_t) stream;
    CHECK(StreamCreate(&stream));
    hidden<<<1, 1, 0, stream>>>(device_result);
    CHECK(StreamSynchronize(stream));
    say("stream", result());
    print<<<1, 1>>>(42);
    CHECK(DeviceSynchronize());
    return 0;
}
