/* A write-lifetime hint whose upper half is garbage. */
#include "probe.h"

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    unsigned long long hint = 0xdeadbeef00000003;
    errno = 0;
    int result = fcntl(fd, 1036 /* F_SET_RW_HINT */, &hint);
    printf("hint = %d%s%s\n", result, result ? " " : "", result ? strerrorname_np(errno) : "");
}
