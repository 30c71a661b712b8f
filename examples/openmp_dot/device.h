// Called from target regions.
#pragma once

#pragma omp begin declare target
double product(double x, double y);
#pragma omp end declare target
