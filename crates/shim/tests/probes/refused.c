/* What is refused on weft files: each with an errno, none silently. */
#include "probe.h"
#include <pthread.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static int child(void *unused) { _exit(unused != NULL); }
static void *parts(void *unused) {
    TRY(unshare(CLONE_FILES));
    TRY(close_range(900, 900, CLOSE_RANGE_UNSHARE));
    TRY(syscall(SYS_unshare, CLONE_FILES));
    TRY(unshare(CLONE_FS));
    TRY(syscall(SYS_unshare, CLONE_FS));
    return unused;
}

static void probe(void) {
    static char stack[65536] __attribute__((aligned(16)));
    TRY(unshare(CLONE_FILES));
    TRY(unshare(CLONE_FS));
    TRY(clone(child, stack + sizeof stack, SIGCHLD | CLONE_FILES, NULL));
    TRY(clone(child, stack + sizeof stack, SIGCHLD | CLONE_VM, NULL));
    TRY(syscall(SYS_clone, SIGCHLD | CLONE_FILES, 0, 0, 0, 0));
    pthread_t thread;
    pthread_create(&thread, NULL, parts, NULL);
    pthread_join(thread, NULL);

    put_file("f", "content");
    int fd = open(at("f"), O_RDWR);
    mknod(at("node"), S_IFSOCK | 0600, 0);
    TRY(open(at("node"), O_RDWR));
    TRY(ioctl(fd, 0x6666, 0));
    TRY(ioctl(fd, FIONBIO, &(int){1}));
    TRY(fcntl(fd, 9999, 0));
    TRY(fcntl(fd, F_SETLEASE, F_RDLCK));
    TRY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    TRY(syscall(SYS_io_uring_setup, 8, NULL));
    TRY(chroot(root));
    int watcher = inotify_init();
    TRY(inotify_add_watch(watcher, at("f"), IN_MODIFY));
    char handle[256] = "";
    int mount_id;
    TRY(name_to_handle_at(AT_FDCWD, at("f"), (struct file_handle *)handle, &mount_id, 0));
    int outside = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    TRY(copy_file_range(fd, NULL, outside, NULL, 4, 0));
    int ends[2];
    TRY(pipe(ends));
    TRY(copy_file_range(fd, NULL, ends[1], NULL, 4, 0));
    TRY(copy_file_range(ends[0], NULL, fd, NULL, 4, 0));
    TRY(copy_file_range(open("/tmp", O_RDONLY), NULL, fd, NULL, 4, 0));
    TRY(copy_file_range(fd, NULL, open("/dev/null", O_RDONLY), NULL, 4, 0));
    TRY(copy_file_range(open("/tmp", O_PATH), NULL, fd, NULL, 4, 0));
    TRY(rename(at("f"), "/tmp/weft-refused"));
    TRY(link(at("f"), "/tmp/weft-refused"));
    FILE *other = fopen("/dev/null", "r");
    TRY(freopen(at("f"), "r", other) ? 1 : -1);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    TRY(mremap(map, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    /* The placeholder itself takes nothing: what passes the hooks by fails. */
    char self[64];
    snprintf(self, sizeof self, "/proc/%d/fd/%d", getpid(), fd);
    TRY(write(STDOUT_FILENO, "", 0));
    say_file("f");
}
