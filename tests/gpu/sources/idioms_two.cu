#include "report.h"
__global__ void there(int *value) { *value = 7; }
