/* Stores through a shared map and is killed; with a second argument looks at what is left. */
#include "probe.h"

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    if (getenv("LOOK")) {
        char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        printf("map: %.6s\n", map + 5000);
        char text[7] = "";
        pread(fd, text, 6, 5000);
        printf("file: %s\n", text);
        return;
    }
    ftruncate(fd, 8192);
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(map + 5000, "stored");
    kill(getpid(), SIGKILL);
}
