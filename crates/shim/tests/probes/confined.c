/* Processes that confine themselves to some system calls while files are open. */
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void end(const char *what, pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    printf("%s: %s\n", what, WIFSIGNALED(status) ? "killed" : "ended");
}

static void probe(void) {
    int fd = open(at("f"), O_RDWR | O_CREAT, 0600);
    write(fd, "before", 6);
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        write(fd, "within", 6);
        syscall(SYS_exit, 0);
    }
    end("strict", pid);
    for (int round = 0; round < 2; round++) {
        pid = fork();
        if (!pid) {
            struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
            struct sock_fprog program = {1, all};
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            long set = round ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                             : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
            printf("set %ld, written %zd\n", set, write(fd, "within", 6));
            fflush(stdout);
            _exit(0);
        }
        end("filter", pid);
    }
    say_file("f");
}
