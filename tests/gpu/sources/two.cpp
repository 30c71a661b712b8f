// Starts two kernels of two objects or libraries.
extern "C" void run_first();
extern "C" void run_second();
int main() {
    run_first();
    run_second();
    return 0;
}
