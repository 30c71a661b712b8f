// Relocatable code in three files, two of which are a library's.
#pragma once
#include "report.h"
extern __constant__ int offset;
extern __device__ int evaluations;
__device__ int from_one(int x);
__device__ int from_two(int x);
void set_offset(int value);
int count_evaluations();
int own_of_one();
int own_of_two();
