#include "geometry.h"

__device__ float length_squared(float x, float y, float z) { return x * x + y * y + z * z; }
