#include <h.h>
// xxx
void say(int n) { printf("%d one", n); printf("one\n"); printf("%d two", n); printf("two\n");  }
__attribute__((global)) void k(int*p){*p=3;}
void go(int*p){k<<<dim3{1,1,1},dim3{1,1,1}>>>(p);}
