#include "device.h"
#include "forces.h"

static __device__ int stiffness = 7;

// Before the kernel: clang 21 to 23 emit what stands before the first use by the host with the
// variable's plain name, which the rest of the image does not have.
static int read_stiffness() {
    int answer = 0;
    CHECK(hipMemcpyFromSymbol(&answer, HIP_SYMBOL(stiffness), sizeof answer));
    return answer;
}

void soften_on_device();

__global__ void step(Particle* particles, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    particles[i].speed += time_step * force(particles[i].position) * (stiffness == 7);
    particles[i].position += time_step * particles[i].speed;
    atomicAdd(&steps_done, 1u);
}

int main() {
    need_device();
    constexpr int kCount = 100;
    Particle host[kCount], *device;
    for (Particle& particle : host) particle = {1.0f, 0.0f};
    CHECK(hipMalloc(&device, sizeof host));
    CHECK(hipMemcpy(device, host, sizeof host, hipMemcpyHostToDevice));
    set_time_step(0.5f);
    soften_on_device();
    step<<<2, 64>>>(device, kCount);
    CHECK(hipMemcpy(host, device, sizeof host, hipMemcpyDeviceToHost));
    unsigned steps = 0;
    CHECK(hipMemcpyFromSymbol(&steps, HIP_SYMBOL(steps_done), sizeof steps));
    int wrong = (steps != kCount) + (read_stiffness() != 7);
    for (const Particle& particle : host) wrong += particle.speed != -0.75f;
    return verdict("rdc", wrong);
}
