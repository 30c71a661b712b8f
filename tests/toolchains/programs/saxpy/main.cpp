// Plain C++: knows nothing of HIP but that there may be no device.
#include <cstdio>

#include "saxpy.h"

extern "C" int hipGetDeviceCount(int*);

int main() {
    int devices = 0;
    if (hipGetDeviceCount(&devices) != 0 || devices == 0) {
        std::puts("no HIP device");
        return 0;
    }
    int wrong = run_saxpy(100000);
    std::printf("saxpy: %d wrong\n", wrong);
    return wrong != 0;
}
