//! The table of all functions of the surface.
//!
//! A name in `served` and `refused` is a hook: a function that some module below `hooks` declares by `hooks!`, or an entry in
//! assembly. Behind it are the other names that lead to it.

use super::{Area, Group, Treatment};
use crate::report::Refusal;

macro_rules! surface {
    (@library) => { None };
    (@library $library:literal) => { Some($library) };
    ($(
        $title:literal $(of $library:literal)? {
            served { $($hook:ident $(($($alias:ident)+))?)* }
            $(refused $refusal:ident { $($refused:ident $(($($refused_alias:ident)+))?)* })*
            $(passes $why:literal { $($passing:ident)* })*
        }
    )*) => {
        /// Exports a hook under each of its names.
        macro_rules! names_of {
            $($(($hook $signature:tt) => {
                hooks!(@export $hook $hook $signature);
                $($(hooks!(@export $alias $hook $signature);)+)?
            };)*)*
            $($($(($refused $signature:tt) => {
                hooks!(@export $refused $refused $signature);
                $($(hooks!(@export $refused_alias $refused $signature);)+)?
            };)*)*)*
        }

        /// All areas of the surface, with their functions.
        pub static TABLE: &[Area] = &[$(Area {
            title: $title,
            library: surface!(@library $($library)?),
            groups: &[
                Group { treatment: Treatment::Served, names: &[$(stringify!($hook), $($(stringify!($alias),)+)?)*] },
                $(Group {
                    treatment: Treatment::Refused(Refusal::$refusal),
                    names: &[$(stringify!($refused), $($(stringify!($refused_alias),)+)?)*],
                },)*
                $(Group { treatment: Treatment::Passes($why), names: &[$(stringify!($passing),)*] },)*
            ],
        },)*];
    };
}

surface! {
    "Opening, closing, duplicating" {
        served {
            open(open64 __open __open64) openat(openat64) __open_2(__open64_2) __openat_2(__openat64_2)
            creat(creat64) close(__close) close_range closefrom dup dup2(__dup2) dup3
        }
        refused Handles { name_to_handle_at }
        passes "needs a handle, which no weft file has" { open_by_handle_at }
        passes "makes a descriptor of another kind, never of a file on a volume" {
            pipe __pipe pipe2 eventfd signalfd timerfd_create epoll_create epoll_create1 inotify_init inotify_init1 fanotify_init
            memfd_create posix_openpt getpt openpty
        }
    }

    "Reading and writing" {
        served {
            read(__read) __read_chk write(__write) pread(pread64 __pread64) __pread_chk(__pread64_chk)
            pwrite(pwrite64 __pwrite64) readv writev preadv(preadv64) pwritev(pwritev64) preadv2(preadv64v2)
            pwritev2(pwritev64v2) lseek(lseek64 __lseek llseek) copy_file_range sendfile(sendfile64) splice
            vdprintf __vdprintf_chk dprintf __dprintf_chk backtrace_symbols_fd(__backtrace_symbols_fd)
            aio_read(aio_read64) aio_write(aio_write64) aio_fsync(aio_fsync64) lio_listio(lio_listio64)
        }
        passes "works on pipes; the kernel refuses other descriptors" { tee vmsplice }
        passes "reads the state of a request; the shim executes requests on weft files at submission" {
            aio_cancel aio_cancel64 aio_error aio_error64 aio_init aio_return aio_return64 aio_suspend aio_suspend64
        }
    }

    "Durability and space" {
        served {
            fsync fdatasync sync syncfs sync_file_range truncate(truncate64) ftruncate(ftruncate64)
            fallocate(fallocate64) posix_fallocate(posix_fallocate64) posix_fadvise(posix_fadvise64) readahead
            statfs(statfs64 __statfs) fstatfs(fstatfs64) statvfs(statvfs64) fstatvfs(fstatvfs64)
        }
        passes "concerns block devices, and quotas of kernel file systems" { quotactl swapon swapoff }
    }

    "Attributes" {
        served {
            stat(stat64) lstat(lstat64) fstat(fstat64) fstatat(fstatat64) __xstat(__xstat64)
            __lxstat(__lxstat64) __fxstat(__fxstat64) __fxstatat(__fxstatat64) statx access faccessat eaccess
            euidaccess chmod fchmod fchmodat lchmod chown lchown fchown fchownat utime utimes lutimes futimes
            futimesat utimensat futimens getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr
            llistxattr flistxattr removexattr lremovexattr fremovexattr umask pathconf fpathconf ftok
        }
    }

    "Names" {
        served {
            mkdir mkdirat rmdir unlink unlinkat remove rename renameat renameat2 link linkat symlink symlinkat
            readlink readlinkat __readlink_chk __readlinkat_chk realpath __realpath_chk canonicalize_file_name
            mknod mknodat __xmknod __xmknodat mkfifo mkfifoat mkstemp(mkstemp64) mkostemp(mkostemp64)
            mkstemps(mkstemps64) mkostemps(mkostemps64) mkdtemp mktemp tempnam
        }
        passes "returns an unused name below /tmp; the program opens it with a function of this list" { tmpnam tmpnam_r }
    }

    "Directories" {
        served {
            opendir fdopendir readdir(readdir64) readdir_r(readdir64_r) closedir rewinddir telldir seekdir
            dirfd getdents64 getdirentries(getdirentries64) scandir(scandir64) scandirat(scandirat64)
            glob(glob64) ftw(ftw64) nftw(nftw64) fts_open(fts64_open) fts_read(fts64_read)
            fts_children(fts64_children) fts_set(fts64_set) fts_close(fts64_close) chdir fchdir getcwd
            __getcwd_chk getwd __getwd_chk get_current_dir_name
        }
        refused Chroot { chroot }
    }

    "Locks and control" {
        served {
            fcntl(fcntl64 __fcntl) flock lockf(lockf64) ioctl
        }
        passes "the kernel gives the same answer for the placeholder as for a regular file" {
            poll __poll __poll_chk select __select
            epoll_ctl epoll_wait isatty ttyname ttyname_r __ttyname_r_chk isfdtype
            tcdrain tcflow tcflush tcgetattr tcgetpgrp tcgetsid tcsendbreak tcsetattr tcsetpgrp
            cfgetispeed cfgetospeed cfmakeraw cfsetispeed cfsetospeed cfsetspeed
            ptsname ptsname_r __ptsname_r_chk grantpt unlockpt
            timerfd_gettime timerfd_settime eventfd_read eventfd_write inotify_rm_watch
        }
    }

    "Limits" {
        served {
            setrlimit(setrlimit64) prlimit(prlimit64) ulimit prctl
        }
    }

    "Memory maps" {
        served {
            mmap(mmap64) munmap mremap msync madvise mprotect pkey_mprotect
        }
        refused MapOrder { remap_file_pages }
        passes "works on the mapped copy" { posix_madvise mincore }
    }

    "Streams" {
        served {
            fopen(fopen64 _IO_fopen) freopen(freopen64) fdopen(_IO_fdopen) fclose(_IO_fclose)
            fileno(fileno_unlocked) tmpfile(tmpfile64) popen(_IO_popen) pclose setmntent(__setmntent) fwide
            fgetwc(getwc) fgetwc_unlocked(getwc_unlocked) getwchar getwchar_unlocked ungetwc fputwc(putwc)
            fputwc_unlocked(putwc_unlocked) putwchar putwchar_unlocked fgetws fgetws_unlocked __fgetws_chk
            __fgetws_unlocked_chk fputws fputws_unlocked fwprintf __fwprintf_chk wprintf __wprintf_chk
            vfwprintf __vfwprintf_chk vwprintf __vwprintf_chk fwscanf __isoc99_fwscanf wscanf __isoc99_wscanf
            vfwscanf __isoc99_vfwscanf vwscanf __isoc99_vwscanf
        }
        passes "works on a stream; a stream of a weft file reads, writes and seeks with the shim's functions" {
            stdin stdout stderr
            fread fread_unlocked __fread_chk __fread_unlocked_chk fwrite fwrite_unlocked
            fgetc fgetc_unlocked getc getc_unlocked getchar getchar_unlocked ungetc getw putw
            fputc fputc_unlocked putc putc_unlocked putchar putchar_unlocked
            fgets fgets_unlocked __fgets_chk __fgets_unlocked_chk gets __gets_chk fputs fputs_unlocked puts
            getline getdelim __getdelim fflush fflush_unlocked fcloseall
            fseek fseeko fseeko64 ftell ftello ftello64 rewind fgetpos fgetpos64 fsetpos fsetpos64
            feof feof_unlocked ferror ferror_unlocked clearerr clearerr_unlocked flockfile ftrylockfile funlockfile
            setbuf setbuffer setlinebuf setvbuf
            __fbufsize __flbf __fpending __fpurge __freadable __freading __fsetlocking __fwritable __fwriting
            printf __printf_chk vprintf __vprintf_chk fprintf __fprintf_chk vfprintf __vfprintf_chk
            scanf vscanf fscanf vfscanf __vfscanf __isoc99_scanf __isoc99_vscanf __isoc99_fscanf __isoc99_vfscanf
            fgetgrent fgetgrent_r fgetpwent fgetpwent_r fgetsgent fgetsgent_r fgetspent fgetspent_r
            putgrent putpwent putsgent putspent getmntent getmntent_r __getmntent_r addmntent endmntent __endmntent
            malloc_info malloc_stats xdrstdio_create
        }
        passes "makes a stream without a file" { fmemopen open_memstream open_wmemstream fopencookie }
    }

    "Processes and programs" {
        served {
            fork(__fork) _Fork vfork(__vfork) clone(__clone) daemon forkpty login_tty execve execv execvp
            execvpe execveat fexecve execl execlp execle posix_spawn posix_spawnp system _exit(_Exit)
            quick_exit dlopen dlsym dlvsym syscall setuid seteuid setreuid setresuid setgid setegid setregid setresgid
            setgroups initgroups setfsuid setfsgid capset unshare setns
        }
        passes "records an action for posix_spawn, whose hook executes it" {
            posix_spawn_file_actions_init posix_spawn_file_actions_destroy posix_spawn_file_actions_addopen
            posix_spawn_file_actions_addclose posix_spawn_file_actions_addclosefrom_np posix_spawn_file_actions_adddup2
            posix_spawn_file_actions_addchdir_np posix_spawn_file_actions_addfchdir_np
            posix_spawn_file_actions_addtcsetpgrp_np
            posix_spawnattr_init posix_spawnattr_destroy posix_spawnattr_getflags posix_spawnattr_setflags
            posix_spawnattr_getpgroup posix_spawnattr_setpgroup posix_spawnattr_getschedparam posix_spawnattr_setschedparam
            posix_spawnattr_getschedpolicy posix_spawnattr_setschedpolicy posix_spawnattr_getsigdefault
            posix_spawnattr_setsigdefault posix_spawnattr_getsigmask posix_spawnattr_setsigmask
        }
        passes "the loader opens the library itself and finds no files of a volume" { dlmopen }
    }

    "Signals and threads" {
        served {
            sigaction(__sigaction) sigaltstack sigprocmask pthread_sigmask signal(ssignal bsd_signal)
            sysv_signal(__sysv_signal) sigset sigignore sighold sigblock sigsetmask sigsuspend(__sigsuspend)
            ppoll __ppoll_chk pselect epoll_pwait epoll_pwait2 pthread_setcanceltype pthread_create
        }
    }

    "Sockets" {
        served {
            bind connect(__connect) sendmsg sendmmsg recvmsg recvmmsg sendto recvfrom __recvfrom_chk accept
            accept4 getsockname getpeername
        }
        refused TakeDescriptor { pidfd_getfd }
        passes "concerns sockets; the kernel refuses any other descriptor (ENOTSOCK)" {
            socket socketpair listen shutdown getsockopt setsockopt sockatmark
            send __send recv __recv_chk
        }
    }

    "Watching, mounting, accounting" {
        served {}
        refused Watch { inotify_add_watch fanotify_mark }
        refused Mount { mount }
        passes "calls the kernel, where a path on the volume does not exist (ENOENT)" {
            umount umount2 mount_setattr move_mount open_tree fspick fsopen fsconfig fsmount pivot_root acct vhangup
        }
    }

    "Files that libc opens by itself" {
        served {}
        refused Words { wordexp }
        passes "libc opens a path internally and finds no files of a volume (ENOENT)" {
            catopen utmpname utmpxname updwtmp updwtmpx svcunix_create svcunixfd_create svcfd_create
            clntunix_create mtrace muntrace
        }
        passes "names an object in a separate namespace, not a file" {
            shm_open shm_unlink sem_open sem_close sem_unlink
            mq_open __mq_open_2 mq_close mq_unlink mq_getattr mq_setattr mq_notify mq_receive mq_send mq_timedreceive mq_timedsend
        }
        passes "frees memory" { wordfree }
    }

    "Asynchronous I/O of the kernel" of "libaio.so.1" {
        served {
            io_submit io_getevents io_pgetevents io_queue_run io_queue_wait io_destroy(io_queue_release)
        }
        passes "creates a context of the kernel, or cancels a request that the kernel executes" {
            io_setup io_queue_init io_cancel
        }
    }

    "Rings of the kernel" of "liburing.so.2" {
        served {}
        refused IoUring {
            io_uring_queue_init io_uring_queue_init_params io_uring_queue_init_mem
            io_uring_queue_init_try_nosqarr io_uring_setup io_uring_get_probe
        }
        passes "asks the kernel about memory, or works on a ring, which no program can create" {
            io_uring_mlock_size io_uring_mlock_size_params io_uring_free_probe io_uring_get_probe_ring
            io_uring_queue_mmap io_uring_ring_dontfork io_uring_queue_exit io_uring_get_sqe
            io_uring_submit io_uring_submit_and_wait io_uring_submit_and_wait_timeout io_uring_submit_and_get_events
            io_uring_get_events io_uring_wait_cqes io_uring_wait_cqe_timeout io_uring_peek_batch_cqe __io_uring_get_cqe
            __io_uring_sqring_wait io_uring_enter io_uring_enter2 io_uring_register
            io_uring_register_buffers io_uring_register_buffers_tags io_uring_register_buffers_sparse
            io_uring_register_buffers_update_tag io_uring_unregister_buffers
            io_uring_register_files io_uring_register_files_tags io_uring_register_files_sparse
            io_uring_register_files_update io_uring_register_files_update_tag io_uring_unregister_files
            io_uring_register_file_alloc_range io_uring_register_eventfd io_uring_register_eventfd_async
            io_uring_unregister_eventfd io_uring_register_probe io_uring_register_personality
            io_uring_unregister_personality io_uring_register_iowq_aff io_uring_unregister_iowq_aff
            io_uring_register_iowq_max_workers io_uring_register_ring_fd io_uring_unregister_ring_fd
            io_uring_register_buf_ring io_uring_unregister_buf_ring io_uring_register_sync_cancel
        }
    }
}
