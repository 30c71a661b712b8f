// A function with an OpenMP target region, which says of which image it is.
#pragma once
#include <omp.h>
#include <stdio.h>

#ifndef TARGET
#define TARGET 0
#endif
#ifndef VERSION
#error "VERSION is that of the sources, by which the image of an older one is known"
#endif

#pragma omp begin declare target
static int own = VERSION;  // each file has one of this name
#pragma omp end declare target

#define RUN(name)                                                             \
    void run_##name(void) {                                                   \
        int target = -1, version = -1;                                        \
        _Pragma("omp target map(from : target, version)") {                   \
            target = omp_is_initial_device() ? -2 : TARGET;                   \
            version = own;                                                    \
        }                                                                     \
        printf(#name ": target %d binary 0 version %d\n", target, version);   \
        fflush(stdout);                                                       \
    }
