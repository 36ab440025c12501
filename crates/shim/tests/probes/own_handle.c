/* Functions that a program finds in a library's own handle, or by their version, as interfaces of other languages to C do. */
#include "probe.h"
#include <dlfcn.h>
#include <sys/file.h>

typedef int Open(const char *, int, ...);
typedef int Flock(int, int);
typedef int Fchmod(int, mode_t);
typedef ssize_t Write(int, const void *, size_t);
typedef FILE *Fopen(const char *, const char *);
typedef void *Dlsym(void *, const char *);

static void functions_of(const char *library) {
    void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    printf("%s: %s\n", library, handle ? "opened" : dlerror());
    Open *open_ = (Open *)dlsym(handle, "open");
    Open *open64_ = (Open *)dlsym(handle, "open64");
    Flock *flock_ = (Flock *)dlsym(handle, "flock");
    Fchmod *fchmod_ = (Fchmod *)dlsym(handle, "fchmod");
    Write *write_ = (Write *)dlsym(handle, "write");
    Fopen *fopen_ = (Fopen *)dlsym(handle, "fopen");
    int fd = OK(open_(at("h"), O_RDWR | O_CREAT | O_APPEND, 0600));
    int other = OK(open64_(at("h"), O_RDONLY));
    TRY(write_(fd, "line\n", 5));
    TRY(flock_(fd, LOCK_EX | LOCK_NB));
    TRY(flock_(other, LOCK_EX | LOCK_NB));
    TRY(fchmod_(fd, 0640));
    struct stat st;
    TRY(stat(at("h"), &st));
    printf("mode %o\n", st.st_mode & 07777);
    FILE *stream = fopen_(at("h"), "a");
    TRY(fputs("stream\n", stream) >= 0);
    TRY(fclose(stream));
    close(fd);
    close(other);
    say_file("h");
    dlclose(handle);
}

static void functions_by_version(void *handle, const char *what) {
    Open *open_ = (Open *)dlvsym(handle, "open", "GLIBC_2.2.5");
    Flock *flock_ = (Flock *)dlvsym(handle, "flock", "GLIBC_2.2.5");
    printf("%s\n", what);
    int fd = OK(open_(at("v"), O_RDWR | O_CREAT, 0600));
    int other = OK(open_(at("v"), O_RDONLY));
    TRY(flock_(fd, LOCK_EX | LOCK_NB));
    TRY(flock_(other, LOCK_EX | LOCK_NB));
    close(fd);
    close(other);
    printf("of a version that there is not: %s\n", dlvsym(handle, "open", "GLIBC_1") ? "found" : "null");
}

static void probe(void) {
    functions_of("libc.so.6");
    /* libc is what this one needs. */
    functions_of("libm.so.6");
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    functions_by_version(libc, "handle");
    functions_by_version(RTLD_NEXT, "next");
    functions_by_version(RTLD_DEFAULT, "default");
    printf("no such function: %s\n", dlsym(libc, "weft_no_such_function") ? "found" : "null");
    printf("the loader says so: %d\n", dlerror() != NULL);
    /* The search for functions is itself one that can be found. */
    Dlsym *dlsym_ = (Dlsym *)dlsym(libc, "dlsym");
    Open *open_ = (Open *)dlsym_(libc, "open");
    int fd = OK(open_(at("d"), O_RDWR | O_CREAT, 0600));
    TRY(write(fd, "found", 5));
    close(fd);
    say_file("d");
    printf("next: %d\n", dlsym(RTLD_NEXT, "open") != NULL);
    chdir(root);
    Open *creat_ = (Open *)dlsym(libc, "creat64");
    fd = OK(creat_("relative", 0600));
    close(fd);
    say_file("relative");
}
