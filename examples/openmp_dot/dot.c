// A dot product on the default OpenMP device, which may be a GPU or this machine's CPU.
// The program says where it ran.
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<omp.h>)
#include <omp.h>
#else  // a clang without its OpenMP runtime: it compiles this, and there is nothing to link with
int omp_get_num_devices(void);
int omp_is_initial_device(void);
#endif

#include "device.h"

int main(void) {
    enum { N = 100000 };
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; ++i) x[i] = 1.0, y[i] = i % 7;

    double sum = 0;
    int on_device = 0;
#pragma omp target teams distribute parallel for reduction(+ : sum) \
    map(to : x[0 : N], y[0 : N]) map(tofrom : sum)
    for (int i = 0; i < N; ++i) sum += product(x[i], y[i]);
#pragma omp target map(from : on_device)
    on_device = !omp_is_initial_device();

    double expected = 0;
    for (int i = 0; i < N; ++i) expected += x[i] * y[i];
    printf("dot: %g, expected %g, computed on %s; %d devices\n", sum, expected,
           on_device ? "a device" : "the host, as no device takes its code",
           omp_get_num_devices());
    free(x);
    free(y);
    return sum != expected;
}
