/* Formatted output to descriptors. */
#include "probe.h"
#include <execinfo.h>

static int through(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vdprintf(fd, format, arguments);
    va_end(arguments);
    return n;
}

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    TRY(dprintf(fd, "plain\n"));
    TRY(dprintf(fd, "%d %s %c %lld %x %p %%\n", -7, "text", 'c', 1LL << 40, 0xabcdu, (void *)16));
    TRY(dprintf(fd, "%d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5, 6, 7, 8));
    TRY(dprintf(fd, "%.2f %g %e %d %.1f %.1f %.1f %.1f %.1f %.1f %.1f %s\n", 1.5, 0.25, 1e100, 9, 1.1, 2.2, 3.3, 4.4, 5.5,
                6.6, 7.7, "end"));
    TRY(dprintf(fd, "%Lf %*d %-6s| %2$d\n", 2.5L, 5, 42, "ab"));
    TRY(through(fd, "%s %d %.1f\n", "through", 3, 4.5));
    int none = open(at("f"), O_RDONLY);
    TRY(dprintf(none, "not here\n"));
    TRY(dprintf(-1, "nor here\n"));
    int len = 300000;
    TRY(dprintf(fd, "%0*d\n", len, 1));
    struct stat st;
    fstat(fd, &st);
    printf("size %lld\n", (long long)st.st_size);
    void *frames[4];
    int count = backtrace(frames, 1);
    ftruncate(fd, 0);
    lseek(fd, 0, SEEK_SET);
    backtrace_symbols_fd(frames, count, fd);
    char text[200] = "";
    pread(fd, text, sizeof text - 1, 0);
    printf("a line %d\n", strchr(text, '[') && strchr(text, '\n') == text + strlen(text) - 1);
}
