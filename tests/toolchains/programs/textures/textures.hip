// A texture object where the processor has image instructions, plain loads where it has none.
#include "device.h"

#include <vector>

__constant__ float weights[3] = {0.25f, 0.5f, 0.25f};

__global__ void blur(hipTextureObject_t image, const float* pixels, float* output, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width) return;
    float sum = 0;
    for (int i = -1; i <= 1; ++i) {
        int at = x + i < 0 ? 0 : x + i >= width ? width - 1 : x + i;
#if defined(__HIP_NO_IMAGE_SUPPORT) && __HIP_NO_IMAGE_SUPPORT
        sum += weights[i + 1] * pixels[at];
#else
        sum += weights[i + 1] * (image ? tex1Dfetch<float>(image, at) : pixels[at]);
#endif
    }
    output[x] = sum;
}

int main() {
    need_device();
    constexpr int kWidth = 512;
    std::vector<float> host(kWidth, 4.0f);
    float *input, *output;
    CHECK(hipMalloc(&input, kWidth * sizeof(float)));
    CHECK(hipMalloc(&output, kWidth * sizeof(float)));
    CHECK(hipMemcpy(input, host.data(), kWidth * sizeof(float), hipMemcpyHostToDevice));
    hipResourceDesc resource = {};
    resource.resType = hipResourceTypeLinear;
    resource.res.linear.devPtr = input;
    resource.res.linear.desc = hipCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = kWidth * sizeof(float);
    hipTextureDesc description = {};
    description.readMode = hipReadModeElementType;
    hipTextureObject_t image = {};
    if (hipCreateTextureObject(&image, &resource, &description, nullptr) != hipSuccess) image = {};
    blur<<<kWidth / 64, 64>>>(image, input, output, kWidth);
    CHECK(hipMemcpy(host.data(), output, kWidth * sizeof(float), hipMemcpyDeviceToHost));
    if (image) CHECK(hipDestroyTextureObject(image));
    int wrong = 0;
    for (float value : host) wrong += value != 4.0f;
    return verdict("textures", wrong);
}
