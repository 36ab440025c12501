/* Users, groups and capabilities that a process and its threads take on and lay down: by libc's functions, by system calls, for a
 * time and for good, in children and in programs that are executed. Without the superuser there is nothing to take on. */
#include "probe.h"
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern char **environ;

enum { USER = 4711, OTHER = 4712, GROUP = 4713 };

/* Who may do what by now. */
static void look(const char *who) {
    struct stat st;
    char name[32];
    printf("-- %s\n", who);
    int fd = open(at("secret"), O_RDONLY);
    printf("secret: %s\n", fd < 0 ? strerrorname_np(errno) : "open");
    if (fd >= 0) close(fd);
    fd = open(at("group"), O_RDWR);
    printf("group: %s\n", fd < 0 ? strerrorname_np(errno) : "open");
    if (fd >= 0) close(fd);
    printf("access: %s\n", access(at("secret"), R_OK) ? strerrorname_np(errno) : "ok");
    printf("eaccess: %s\n", faccessat(AT_FDCWD, at("secret"), R_OK, AT_EACCESS) ? strerrorname_np(errno) : "ok");
    printf("closed: %s\n", stat(at("closed/in"), &st) ? strerrorname_np(errno) : "seen");
    snprintf(name, sizeof name, "by %s", who);
    fd = open(at(name), O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd < 0) {
        printf("new: %s\n", strerrorname_np(errno));
    } else {
        fstat(fd, &st);
        printf("new: %d:%d %o\n", st.st_uid, st.st_gid, st.st_mode);
        printf("chown: %s\n", fchown(fd, OTHER, -1) ? strerrorname_np(errno) : "ok");
        printf("set-gid: %s\n", fchmod(fd, 02755) ? strerrorname_np(errno) : "ok");
        fstat(fd, &st);
        printf("then: %d:%d %o\n", st.st_uid, st.st_gid, st.st_mode);
        close(fd);
    }
    snprintf(name, sizeof name, "shared/by %s", who);
    if (mkdir(at(name), 0777)) {
        printf("directory: %s\n", strerrorname_np(errno));
    } else {
        stat(at(name), &st);
        printf("directory: %d:%d %o\n", st.st_uid, st.st_gid, st.st_mode);
    }
    printf("unlink of the sticky: %s\n", unlink(at("sticky/root's")) ? strerrorname_np(errno) : "ok");
    if (!access(at("sticky"), W_OK)) put_file("sticky/root's", "x");
    printf("device: %s\n", mknod(at("device"), S_IFCHR | 0600, 0x501) ? strerrorname_np(errno) : "made");
    unlink(at("device"));
    printf("times: %s\n", utimensat(AT_FDCWD, at("readable"), (struct timespec[2]){{1, 0}, {2, 0}}, 0)
                              ? strerrorname_np(errno) : "set");
    fflush(stdout);
}

/* Runs a step in a child, and tells how it ended. */
static void apart(const char *name, void (*step)(void)) {
    int status;
    printf("==== %s\n", name);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        step();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status) printf("ended by %d\n", status);
}

static void for_good(void) {
    int before = open(at("secret"), O_RDWR | O_APPEND);
    TRY(setgroups(0, NULL));
    TRY(setgid(USER));
    TRY(setuid(USER));
    look("setuid");
    TRY(setuid(0));
    /* What was open stays open. */
    TRY(write(before, "more", 4));
    char text[16];
    TRY(pread(before, text, sizeof text, 0));
    TRY(fchmod(before, 0644));
    TRY(ftruncate(before, 6));
    look("setuid later");
}

static void for_a_time(void) {
    int before = open(at("secret"), O_RDWR | O_APPEND);
    TRY(setegid(USER));
    TRY(seteuid(USER));
    look("seteuid");
    TRY(write(before, "again", 5));
    char text[16];
    TRY(pread(before, text, sizeof text, 0));
    int own = open(at("temporary"), O_CREAT | O_RDWR | O_APPEND, 0600);
    TRY(write(own, "mine", 4));
    TRY(seteuid(0));
    TRY(setegid(0));
    look("seteuid back");
    TRY(write(own, "roots", 5));
    TRY(pread(own, text, sizeof text, 0));
    TRY(setreuid(USER, OTHER));
    look("setreuid");
    TRY(setreuid(-1, USER));
    look("setreuid real");
}

static void by_three(void) {
    TRY(setresgid(USER, USER, 0));
    TRY(setresuid(USER, OTHER, 0));
    look("setresuid");
    TRY(setresuid(-1, 0, -1));
    look("setresuid saved");
    TRY(setresuid(OTHER, OTHER, OTHER));
    TRY(setresuid(-1, 0, -1));
    look("setresuid for good");
}

static void in_groups(void) {
    gid_t groups[] = {GROUP, 4999};
    TRY(setgroups(2, groups));
    TRY(setegid(USER));
    TRY(seteuid(USER));
    look("setgroups");
    TRY(seteuid(0));
    TRY(setgroups(1, groups + 1));
    TRY(seteuid(USER));
    look("setgroups less");
    TRY(seteuid(0));
    OK(initgroups("root", GROUP));
    TRY(seteuid(USER));
    look("initgroups");
    TRY(setregid(-1, GROUP));
    look("setregid");
}

static void of_files(void) {
    TRY(setfsuid(USER));
    TRY(setfsgid(USER));
    TRY(setfsuid(-1));
    look("setfsuid");
    TRY(setfsuid(0));
    look("setfsuid back");
    TRY(setfsgid(0));
    look("setfsgid back");
}

static void by_number(void) {
    TRY(syscall(SYS_setgroups, 0, NULL));
    TRY(syscall(SYS_setregid, USER, USER));
    TRY(syscall(SYS_setresuid, USER, USER, 0));
    look("a number");
    TRY(syscall(SYS_setfsuid, 0));
    look("a number for files");
    TRY(syscall(SYS_setuid, 0));
    look("a number back");
    TRY(syscall(SYS_setresuid, USER, USER, USER));
    look("a number for good");
}

static void drop(unsigned capabilities) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    TRY(syscall(SYS_capget, &header, data));
    data[0].effective &= ~capabilities;
    TRY(syscall(SYS_capset, &header, data));
}

static void without_powers(void) {
    TRY(chown(at("secret"), OTHER, OTHER));
    drop(1 << CAP_DAC_OVERRIDE);
    look("dac_override");
    drop(1 << CAP_DAC_READ_SEARCH);
    look("dac_read_search");
    drop(1 << CAP_FOWNER | 1 << CAP_CHOWN | 1 << CAP_FSETID | 1 << CAP_MKNOD);
    look("all of files");
    TRY(seteuid(USER));
    TRY(seteuid(0));
    look("seteuid gives them back");
    TRY(chown(at("secret"), 0, 0));
}

static void with_powers(void) {
    TRY(prctl(PR_SET_KEEPCAPS, 1));
    TRY(setresuid(USER, USER, USER));
    look("kept but not used");
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    TRY(syscall(SYS_capget, &header, data));
    data[0].effective |= 1 << CAP_DAC_READ_SEARCH;
    TRY(syscall(SYS_capset, &header, data));
    look("dac_read_search kept");
}

static pthread_barrier_t turn;

static void *other_thread(void *unused) {
    pthread_barrier_wait(&turn);
    look("other thread, one is a user");
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    look("other thread, all are users");
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    look("other thread, alone is a user");
    return unused;
}

static void *new_thread(void *name) {
    look(name);
    return NULL;
}

static void in_threads(void) {
    pthread_t other, more;
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&other, NULL, other_thread, NULL);
    TRY(syscall(SYS_setresuid, USER, USER, 0));
    look("this thread");
    pthread_create(&more, NULL, new_thread, "a thread of a user");
    pthread_join(more, NULL);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    /* A child is who the thread is that forks. */
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        look("a child of a user");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    TRY(syscall(SYS_setresuid, 0, 0, 0));
    TRY(setresuid(OTHER, OTHER, 0));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    TRY(syscall(SYS_setresuid, 0, 0, 0));
    look("this thread alone is back");
    pthread_create(&more, NULL, new_thread, "a thread of the superuser");
    pthread_join(more, NULL);
    pthread_barrier_wait(&turn);
    pthread_join(other, NULL);
}

/* A program that says what it may. */
static const char *script =
    "cat \"$1/secret\" >/dev/null 2>&1 && echo secret seen || echo secret not seen; umask 027; : > \"$1/by $2\" && "
    "stat -c '%u:%g %a' \"$1/by $2\"; cd \"$1/shared\" && mkdir \"d $2\" && stat -c '%u:%g %a' \"d $2\"; "
    "sh -c 'cat ../secret >/dev/null 2>&1 && echo again seen || echo again not seen'";

static void executes(const char *name) {
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", script, "sh", root, name, (char *)NULL);
    printf("not executed: %s\n", strerrorname_np(errno));
}

static void then_executes(void) {
    TRY(setgroups(0, NULL));
    TRY(setresgid(USER, USER, USER));
    TRY(setresuid(USER, USER, USER));
    executes("a user's program");
}

static void in_a_namespace(void) {
    /* May be forbidden: then it is natively, too. */
    if (unshare(CLONE_NEWUSER)) {
        printf("no user namespaces\n");
        return;
    }
    /* The superuser's own, and what only the superuser's powers open. */
    OK(open(at("secret"), O_RDWR));
    OK(open(at("group"), O_RDWR));
    TRY(chmod(at("group"), 0777));
}

static void spawns(void) {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_RESETIDS);
    char *arguments[] = {"sh", "-c", (char *)script, "sh", (char *)root, "a spawned program", NULL};
    pid_t child;
    TRY(setreuid(USER, 0));
    fflush(stdout);
    /* Told after its end: the program writes where this one does. */
    int spawned = posix_spawn(&child, "/bin/sh", NULL, &attributes, arguments, environ);
    if (!spawned) waitpid(child, NULL, 0);
    TRY(spawned);
    look("spawner");
}

/* Pipes and shared maps need files of the host: whose they are must fit whoever comes next. */
static void with_files_of_the_host(void) {
    int fd = open(at("readable"), O_RDWR);
    for (int turn = 0; turn < 4; turn++) {
        char name[32];
        TRY(setfsuid(turn % 2 ? 0 : USER));
        snprintf(name, sizeof name, "pipe %d", turn);
        TRY(mkfifo(at(name), 0600));
        TRY(open(at(name), O_WRONLY | O_NONBLOCK));
        OK(open(at(name), O_RDWR | O_NONBLOCK));
        char *shared = mmap(NULL, 7, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *own = mmap(NULL, 7, PROT_READ, MAP_PRIVATE, fd, 0);
        printf("maps: %d %d\n", shared != MAP_FAILED, own != MAP_FAILED);
        if (shared != MAP_FAILED) munmap(shared, 7);
        if (own != MAP_FAILED) munmap(own, 7);
    }
}

static void probe(void) {
    if (geteuid()) {
        printf("left out: not the superuser\n");
        return;
    }
    chmod(root, 0777);
    put_file("secret", "secret");
    chmod(at("secret"), 0600);
    put_file("group", "for some");
    chown(at("group"), OTHER, GROUP);
    chmod(at("group"), 0660);
    put_file("readable", "for all");
    mkdir(at("closed"), 0700);
    put_file("closed/in", "x");
    mkdir(at("shared"), 0777);
    chown(at("shared"), 0, GROUP);
    chmod(at("shared"), 02777);
    mkdir(at("sticky"), 0777);
    chmod(at("sticky"), 01777);
    put_file("sticky/root's", "x");
    look("root");
    apart("setuid", for_good);
    apart("seteuid", for_a_time);
    apart("setresuid", by_three);
    apart("groups", in_groups);
    apart("setfsuid", of_files);
    apart("numbers", by_number);
    apart("capset", without_powers);
    apart("capabilities that are kept", with_powers);
    apart("threads", in_threads);
    apart("exec", then_executes);
    apart("spawn", spawns);
    apart("namespace", in_a_namespace);
    apart("files of the host", with_files_of_the_host);
    look("root at last");
}
