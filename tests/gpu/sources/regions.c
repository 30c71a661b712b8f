/* Starts the regions of two objects or libraries. */
void run_first(void);
void run_second(void);
int main(void) {
    run_first();
    run_second();
    return 0;
}
