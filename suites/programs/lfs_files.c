/* The large-file and small-file loads of log-structured file systems' papers, on a directory; each prints its figure.
 * lfs_files DIR write|read BYTES_OF_FILE BYTES_OF_CALL seq|random            MB/s, the fsync at the end included for writes
 * lfs_files DIR synced BYTES_OF_FILE BYTES_OF_CALL seq|random                writes/s, each followed by an fsync
 * lfs_files DIR create|stat|show|delete FILES BYTES                           files/s, the sync at the end included; 1,000 in a directory */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void try(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "lfs_files: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t state = 88172645463325252ull;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static char buffer[1 << 20];

static double large(const char *dir, const char *what, uint64_t bytes, uint64_t call, int random) {
    char path[4096];
    snprintf(path, sizeof path, "%s/large", dir);
    int reads = !strcmp(what, "read"), synced = !strcmp(what, "synced");
    int file = open(path, reads ? O_RDONLY : O_RDWR | O_CREAT, 0644);
    try(file >= 0, path);
    uint64_t calls = bytes / call;
    double begun = now();
    for (uint64_t n = 0; n < calls; n++) {
        off_t at = (random ? next() % calls : n) * call;
        ssize_t done = reads ? pread(file, buffer, call, at) : pwrite(file, buffer, call, at);
        try(done == (ssize_t)call, what);
        try(!synced || !fsync(file), "fsync");
    }
    try(reads || synced || !fsync(file), "fsync");
    double took = now() - begun;
    close(file);
    return synced ? calls / took : bytes / took / 1e6;
}

static double small(const char *dir, const char *what, uint64_t files, uint64_t bytes) {
    char path[4096];
    struct stat found;
    double begun = now();
    for (uint64_t n = 0; n < files; n++) {
        if (!strcmp(what, "create") && n % 1000 == 0) {
            snprintf(path, sizeof path, "%s/d%lu", dir, (unsigned long)(n / 1000));
            try(!mkdir(path, 0755), path);
        }
        snprintf(path, sizeof path, "%s/d%lu/f%lu", dir, (unsigned long)(n / 1000), (unsigned long)n);
        if (!strcmp(what, "create") || !strcmp(what, "show")) {
            int creates = what[0] == 'c';
            int file = open(path, creates ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY, 0644);
            try(file >= 0, path);
            ssize_t done = creates ? write(file, buffer, bytes) : read(file, buffer, bytes);
            try(done == (ssize_t)bytes, path);
            close(file);
        } else if (!strcmp(what, "stat")) {
            try(!stat(path, &found), path);
        } else {
            try(!unlink(path), path);
        }
    }
    if (!strcmp(what, "create") || !strcmp(what, "delete")) {
        int file = open(dir, O_RDONLY | O_DIRECTORY);
        try(file >= 0 && !syncfs(file), "syncfs");
        close(file);
    }
    return files / (now() - begun);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    memset(buffer, 'x', sizeof buffer);
    uint64_t first = strtoull(argv[3], NULL, 10), second = strtoull(argv[4], NULL, 10);
    double figure = argc > 5 ? large(argv[1], argv[2], first, second, !strcmp(argv[5], "random"))
                             : small(argv[1], argv[2], first, second);
    printf("%.1f\n", figure);
    return 0;
}
