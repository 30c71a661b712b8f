/* Parts of OpenMP, each checked by a value that the host knows. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#pragma omp begin declare target
int factor = 3;
int table[4] = {1, 2, 3, 4};
int times(int x) { return factor * x; }
#pragma omp end declare target
void run_first(void);

int main(void) {
    enum { N = 10000 };
    int *values = malloc(N * sizeof *values);
    for (int i = 0; i < N; ++i) values[i] = i % 10;
    run_first();

    long sum = 0;
#pragma omp target teams distribute parallel for reduction(+ : sum) map(to : values[0 : N])
    for (int i = 0; i < N; ++i) sum += values[i];
    printf("reduction %ld\n", sum);

    double product = 1;
#pragma omp target teams distribute parallel for reduction(* : product)
    for (int i = 0; i < 10; ++i) product *= 2;
    printf("product %g\n", product);

    int most = 0;
#pragma omp target parallel for reduction(max : most) map(to : values[0 : N])
    for (int i = 0; i < N; ++i) most = values[i] > most ? values[i] : most;
    printf("maximum %d\n", most);

    int answer = 0;
#pragma omp target map(from : answer)
    answer = times(14) + table[2];
    printf("declare target %d\n", answer);
    factor = 5, table[2] = 30;
#pragma omp target update to(factor, table)
#pragma omp target map(from : answer)
    answer = times(14) + table[2];
    printf("target update %d\n", answer);

    int teams = 0, threads = 0;
#pragma omp target teams num_teams(4) thread_limit(32) map(tofrom : teams)
    {
#pragma omp atomic
        teams += 1;
    }
#pragma omp target parallel num_threads(32) map(tofrom : threads)
    {
#pragma omp atomic
        threads += 1;
    }
    printf("teams %d, threads %d\n", teams, threads > 1);

#pragma omp target enter data map(to : values[0 : N])
#pragma omp target teams distribute parallel for
    for (int i = 0; i < N; ++i) values[i] += 1;
#pragma omp target exit data map(from : values[0 : N])
    printf("target data %d %d\n", values[0], values[N - 1]);

    fflush(stdout);
#pragma omp target
    printf("device says %d\n", 42);
    free(values);
    return 0;
}
