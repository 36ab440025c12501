/* What a program sees when the server goes: EIO from everything, and the rest of the world as before. */
#include "probe.h"

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    TRY(write(fd, "before", 6));
    DIR *dir = opendir(root);
    FILE *stream = fopen(at("f"), "r");
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 10000 && access(getenv("GONE"), F_OK); i++) usleep(1000);
    char text[8];
    struct stat st;
    TRY(write(fd, "after", 5));
    TRY(pread(fd, text, 6, 0));
    TRY(read(fd, text, 6));
    TRY(fsync(fd));
    TRY(fstat(fd, &st));
    TRY(stat(at("f"), &st));
    TRY(open(at("g"), O_CREAT | O_WRONLY, 0644));
    TRY(rename(at("f"), at("g")));
    TRY(mkdir(at("d"), 0755));
    TRY(ftruncate(fd, 1));
    TRY(fgetc(stream));
    TRY(readdir(dir) ? 1 : -1);
    TRY(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
    TRY(access("/etc/passwd", R_OK));
    TRY(close(fd));
    int native = open("/etc/passwd", O_RDONLY);
    TRY(read(native, text, 4));
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        TRY(stat(at("f"), &st));
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    TRY(system("exit 3") >> 8);
}
