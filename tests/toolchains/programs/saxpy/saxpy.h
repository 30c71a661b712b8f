#pragma once
int run_saxpy(int n);
