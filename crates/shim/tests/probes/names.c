/* Prints the library's hooks, and fails when the loader binds one of them elsewhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    size_t (*list)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "weft_shim_names");
    if (!list) return 2;
    size_t len = list(NULL, 0);
    char *names = malloc(len);
    list(names, len);
    int wrong = 0;
    for (char *name = names; *name; name += strlen(name) + 1) {
        Dl_info info;
        void *address = dlsym(RTLD_DEFAULT, name);
        if (!address || !dladdr(address, &info) || !strstr(info.dli_fname, "weft_shim")) {
            fprintf(stderr, "%s is bound to %s\n", name, address ? info.dli_fname : "nothing");
            wrong = 1;
        }
        puts(name);
    }
    return wrong;
}
