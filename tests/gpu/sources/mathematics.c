/* Functions of the device's mathematics library. */
#include <math.h>
#include <stdio.h>
void run_first(void);
int main(void) {
    double sum = 0, x[100];
    for (int i = 0; i < 100; ++i) x[i] = i;
    run_first();
#pragma omp target teams distribute parallel for reduction(+ : sum) map(to : x)
    for (int i = 0; i < 100; ++i) sum += pow(sin(x[i]), 2) + pow(cos(x[i]), 2);
    printf("mathematics %.6f\n", sum);
    return 0;
}
