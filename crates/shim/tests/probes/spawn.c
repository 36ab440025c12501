/* Programs that are spawned: where they are looked for, and which descriptors they are handed. */
#include "probe.h"
#include <spawn.h>

extern char **environ;

static void end(const char *what, int error, const pid_t *pid) {
    int status = 0;
    if (error) {
        printf("%s: %s\n", what, strerrorname_np(error));
    } else {
        waitpid(*pid, &status, 0);
        printf("%s: status %d\n", what, WEXITSTATUS(status));
    }
}

static void probe(void) {
    pid_t pid;
    posix_spawn_file_actions_t actions;
    char *say[] = {"sh", "-c", "echo hello; echo more", NULL};
    /* The file is close-on-exec; its copy is not. */
    int fd = open(at("out"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    end("dup2", posix_spawn(&pid, "/bin/sh", &actions, NULL, say, environ), &pid);
    close(fd);
    say_file("out");
    posix_spawn_file_actions_destroy(&actions);

    /* Programs in a directory of PATH: a link, a script, a file that is no program, one that may not be executed. */
    mkdir(at("bin"), 0755);
    mkdir(at("other"), 0755);
    symlink("/bin/sh", at("bin/linked"));
    put_file("bin/script", "#!/bin/sh\nexit 21\n");
    put_file("bin/plain", "exit 22\n");
    put_file("bin/denied", "exit 23\n");
    put_file("other/denied", "#!/bin/sh\nexit 24\n");
    put_file("other/later", "#!/bin/sh\nexit 25\n");
    chmod(at("bin/script"), 0755);
    chmod(at("bin/plain"), 0755);
    chmod(at("other/denied"), 0755);
    chmod(at("other/later"), 0755);
    char path[3 * PATH_MAX], *old = strdup(getenv("PATH"));
    snprintf(path, sizeof path, "/nowhere:%s:%s:%s", at("bin"), at("other"), old);
    setenv("PATH", path, 1);
    char *names[] = {"linked", "script", "denied", "later", "sh", "missing", "", NULL};
    for (char **name = names; *name; name++) {
        char *arguments[] = {*name, "-c", "exit 20", NULL};
        end(**name ? *name : "empty", posix_spawnp(&pid, *name, NULL, NULL, arguments, environ), &pid);
    }
    char *arguments[] = {"denied", NULL};
    snprintf(path, sizeof path, "%s", at("bin"));
    setenv("PATH", path, 1);
    end("denied alone", posix_spawnp(&pid, "denied", NULL, NULL, arguments, environ), &pid);
    /* The caller's PATH counts, not the one that the program gets. */
    char *few[] = {"PATH=/nowhere", NULL};
    end("by the caller's PATH", posix_spawnp(&pid, "script", NULL, NULL, arguments, few), &pid);
    pid = fork();
    if (!pid) {
        execlp("plain", "plain", (char *)NULL);
        _exit(99);
    }
    end("execlp", 0, &pid);
    chdir(at("bin"));
    setenv("PATH", ":/nowhere", 1);
    end("in the working directory", posix_spawnp(&pid, "script", NULL, NULL, arguments, environ), &pid);
    setenv("PATH", old, 1);
}
