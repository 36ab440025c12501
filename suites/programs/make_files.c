/* Makes files with their own number in them. make_files DIR FOLDERS FILES: so many folders below DIR, with so many files each. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 4) errx(2, "make_files DIR FOLDERS FILES");
    int folders = atoi(argv[2]), files = atoi(argv[3]);
    if (mkdir(argv[1], 0755) && errno != EEXIST) err(1, "%s", argv[1]);
    for (int folder = 0; folder < folders; folder++) {
        char path[4096], text[32];
        snprintf(path, sizeof path, "%s/d%d", argv[1], folder);
        if (mkdir(path, 0755)) err(1, "%s", path);
        int dir = open(path, O_RDONLY | O_DIRECTORY);
        if (dir < 0) err(1, "%s", path);
        for (int file = 0; file < files; file++) {
            snprintf(path, sizeof path, "file-%d", file);
            int length = snprintf(text, sizeof text, "%d.%d\n", folder, file);
            int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (fd < 0 || write(fd, text, length) != length || close(fd)) err(1, "folder %d, %s", folder, path);
        }
        close(dir);
    }
    return 0;
}
