// The stand-in for the HIP runtime of the example saxpy; see there.
#include "standin_hip_runtime.cpp"
