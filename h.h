#pragma once
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
extern "C" unsigned __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, struct stream* = 0);
extern "C" int printf(const char *, ...);
