/* Opens two libraries with equal names, each for itself, twice: closing one forgets its variable. */
#include <dlfcn.h>
#include <stdio.h>
static void *open_and_run(const char *path, const char *unit) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return printf("%s\n", dlerror()), NULL;
    void (*run)(const char *) = (void (*)(const char *))dlsym(library, "run_plugin");
    run(unit);
    return library;
}
int main(int count, char **paths) {
    if (count != 3) return 2;
    void *one = open_and_run(paths[1], "one");
    void *two = open_and_run(paths[2], "two");
    if (!one || !two) return 1;
    open_and_run(paths[1], "one again");
    dlclose(one), dlclose(one), dlclose(two);
    if (dlopen(paths[1], RTLD_NOW | RTLD_NOLOAD)) puts("one is still open");
    open_and_run(paths[2], "two reopened");
    open_and_run(paths[1], "one reopened");
    return 0;
}
