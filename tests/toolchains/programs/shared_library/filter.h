#pragma once
void clamp_values(float* values, int count, float limit);
int clamp_calls();
