/* Named pipes. */
#include "probe.h"
#include <poll.h>
#include <sys/ioctl.h>

static void end(const char *what, pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    printf("%s: status %d signal %d\n", what, WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void on_alarm(int signal) { (void)signal; }

static void probe(void) {
    char text[64] = "";
    TRY(mkfifo(at("p"), 0640));
    TRY(mkfifo(at("p"), 0640));
    struct stat s;
    stat(at("p"), &s);
    printf("mode %o size %lld\n", s.st_mode, (long long)s.st_size);
    TRY(open(at("p"), O_WRONLY | O_NONBLOCK));
    TRY(open(at("p"), O_RDONLY | O_DIRECTORY));
    TRY(open(at("p"), O_RDWR | O_CREAT | O_EXCL, 0600));
    /* Both sides wait for each other. */
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int to = open(at("p"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        write(to, "through the pipe", 16);
        close(to);
        _exit(3);
    }
    int from = open(at("p"), O_RDONLY);
    TRY(read(from, text, sizeof text));
    printf("%s\n", text);
    end("writer", pid);
    TRY(read(from, text, sizeof text));
    fstat(from, &s);
    printf("fifo %d\n", S_ISFIFO(s.st_mode));
    TRY(lseek(from, 0, SEEK_SET));
    close(from);
    /* One descriptor for both sides, by other names; the name may go. */
    link(at("p"), at("q"));
    rename(at("p"), at("r"));
    int both = open(at("q"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    int write_end = open(at("r"), O_WRONLY);
    TRY(unlink(at("q")));
    TRY(unlink(at("r")));
    TRY(write(write_end, "12345", 5));
    int waiting = 0;
    TRY(ioctl(both, FIONREAD, &waiting));
    struct pollfd events = {both, POLLIN, 0};
    TRY(poll(&events, 1, 0));
    printf("waiting %d, events %d\n", waiting, events.revents);
    TRY(read(both, text, 3));
    TRY(fcntl(both, F_GETFD));
    TRY(fcntl(both, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
    close(both);
    /* Nobody reads any more. */
    signal(SIGPIPE, SIG_IGN);
    TRY(write(write_end, "x", 1));
    close(write_end);
    /* A name made anew is another pipe. */
    mkfifo(at("r"), 0600);
    TRY(open(at("r"), O_WRONLY | O_NONBLOCK));
    /* Waiting for the other side ends with a signal. */
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    pid_t parent = getpid();
    fflush(stdout);
    pid = fork();
    if (!pid) {
        /* Until it is heard: the first may come before the wait. */
        for (int i = 0; i < 2000 && !kill(parent, SIGALRM) && access(at("heard"), F_OK); i++) usleep(5000);
        _exit(4);
    }
    TRY(open(at("r"), O_RDONLY));
    /* One that comes later must not end the wait for the child. */
    signal(SIGALRM, SIG_IGN);
    put_file("heard", "");
    end("whoever sent the signal", pid);
    /* Programs. */
    fflush(stdout);
    chdir(root);
    printf("system %d\n", WEXITSTATUS(system("(echo over the fifo >r) & cat <r >copied; wait")));
    say_file("copied");
    FILE *stream;
    fflush(stdout);
    pid = fork();
    if (!pid) {
        stream = fopen(at("r"), "w");
        fprintf(stream, "line\n");
        exit(fclose(stream));
    }
    stream = fopen(at("r"), "r");
    printf("stream %s", fgets(text, sizeof text, stream));
    fclose(stream);
    end("stream", pid);
}
