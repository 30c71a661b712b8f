// What main.cpp calls: each starts one kernel on device memory.
#pragma once

#include "hip_declarations.h"

void saxpy(int n, float a, const float* x, float* y);
void scale(int n, float a, float* y);
